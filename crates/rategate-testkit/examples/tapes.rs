//! Writes the tape of each scenario file of a folder into another one, and prints which files have
//! none. `cargo xtask tapes` runs it.

use std::path::Path;
use std::{env, fs};

use rategate_testkit::scenario::{Scenario, tape};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut folders = env::args().skip(1);
    let (Some(from), Some(to)) = (folders.next(), folders.next()) else {
        return Err("needs the folder of the scenarios, and that of the tapes".into());
    };
    let mut files = fs::read_dir(&from)?
        .map(|file| Ok(file?.path()))
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    files.sort();
    let (mut written, mut left_out) = (0, Vec::new());
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let scenario = Scenario::parse(&fs::read_to_string(file)?)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        match tape(&name, &scenario) {
            Ok(text) => {
                fs::write(Path::new(&to).join(format!("{name}.tape")), text)?;
                written += 1;
            }
            Err(reason) => left_out.push((reason, name)),
        }
    }
    println!("{written} tapes; {} scenarios have none:", left_out.len());
    left_out.sort();
    for (reason, name) in left_out {
        println!("  {name}: {reason}");
    }
    Ok(())
}
