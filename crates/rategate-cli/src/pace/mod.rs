//! `rategate pace`: paces real work at a rate, or by a shape.

mod copy;
mod gate;
mod input;
mod jobs;
mod limits;
mod log;
mod meter;
mod run;
mod shape;
mod signals;

use std::path::Path;

use crate::args::PaceArgs;
use crate::failure::Failure;
use gate::Gate;
use input::Input;
use limits::{Settings, Unit};
use log::Log;
use meter::Meter;

pub(crate) use limits::rate;
pub(crate) use signals::Stop;

/// Paces stdin and returns the exit status.
pub(crate) fn run(args: &PaceArgs) -> Result<u8, Failure> {
    let settings = Settings::of(args)?;
    let trace = args.shape.as_deref().and_then(shape::trace_file).map(Path::new);
    let log = args.log_json.as_deref().map(|path| Log::create(path, trace)).transpose()?;
    let stop = Stop::watch()?;
    let mut input = Input::open(&stop)?;
    let meter = Meter::start(settings.unit);
    let mut gate = Gate::new(settings.policies, settings.due, stop.clone(), meter.tally(), log);

    let worked = match (args.command.as_slice(), settings.unit) {
        ([], Unit::Lines) => copy::lines(&mut input, &mut gate).map(|()| 0),
        ([], Unit::Bytes) => copy::bytes(&mut input, &mut gate, settings.chunk).map(|()| 0),
        ([program, arguments @ ..], _) => {
            let template = run::Template::new(program, arguments);
            run::lines(&mut input, &mut gate, &template, settings.jobs, &stop)
        }
    };
    meter.finish();
    let logged = gate.finish();
    let status = worked?;
    logged?;
    Ok(stop.interrupted_status().unwrap_or(status))
}
