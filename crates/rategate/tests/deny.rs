//! The deny list: its entries, its replacement, and the file that it follows.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rategate::deny::{
    DenyFile, DenyList, Entry, FileError, InvalidLine, MAX_NAME_BYTES, Refreshed, Replaced,
    escaped, read, write,
};

const SECOND_NS: u64 = 1_000_000_000;

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deny").join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// S3.20: an entry is exact to the nanosecond, and nothing of the previous list is left.
#[test]
fn an_entry_denies_until_its_end() {
    let list: DenyList = DenyList::new(100);
    assert_eq!(list.denied_for_at(b"a", 0), None);
    let entries = [(b"a", 7), (b"b", 9), (b"a", 8), (b"a", 3), (b"c", 0)];
    let replaced = list.replace(entries.map(|(name, until_ns)| (list.id(name), until_ns)));
    assert_eq!(replaced, Replaced { listed: 2, left_out: 0 });
    for now_ns in 0..12 {
        for (name, until_ns) in [(b"a", 8_u64), (b"b", 9), (b"c", 0), (b"d", 0)] {
            let left_ns = until_ns.checked_sub(now_ns).filter(|left_ns| *left_ns > 0);
            assert_eq!(list.denied_for_at(name, now_ns), left_ns.map(Duration::from_nanos));
        }
    }
    assert_eq!((list.len(), list.replacements()), (2, 1));
    list.replace([(list.id(b"d"), u64::MAX)]);
    assert_eq!(list.denied_for_at(b"a", 0), None);
    assert!(list.denied_for(b"d").is_some() && list.clone().denied_for(b"a").is_none());
    assert_eq!(list.until_ns(b"d").map(u64::from), Some(u64::MAX));
    list.replace([]);
    assert!(list.is_empty() && list.until_ns(b"d").is_none());
}

/// Numbers are told apart as keys as well as names are, however large the list.
#[test]
fn a_list_of_any_length_has_all_its_callers() {
    for (max_entries, length) in [(1, 1_u32), (3, 3), (1_000, 999), (40_000, 40_000)] {
        let list: DenyList<Ipv4Addr> = DenyList::new(max_entries);
        let address = |number: u32| Ipv4Addr::from_bits(number * 2);
        for round in 1..=3_u64 {
            let entries = (0..length).map(|number| (list.id(&address(number)), round));
            let listed = usize::try_from(length).unwrap();
            assert_eq!(list.replace(entries), Replaced { listed, left_out: 0 });
            for number in 0..length {
                assert_eq!(list.until_ns(&address(number)).map(u64::from), Some(round));
                assert_eq!(list.until_ns(&Ipv4Addr::from_bits(number * 2 + 1)), None);
            }
        }
    }
    let list: DenyList<u32> = DenyList::new(5);
    let replaced = list.replace((0..9).map(|number| (list.id(&number), 1)));
    assert_eq!(replaced, Replaced { listed: 5, left_out: 4 });
    assert_eq!(DenyList::<u32>::new(0).capacity(), 1);
}

/// A reader finds each caller in the previous list or in the next, and never returns to an older
/// one.
#[test]
fn a_list_is_replaced_as_a_whole() {
    let list: DenyList<u32> = DenyList::new(2_000);
    let is_over = AtomicBool::new(false);
    let publish = |round: u64| {
        // The lists differ in length, so that the tables do too; these four keys are in all of
        // them.
        let length = [4, 1_900, 30, 700][usize::try_from(round % 4).unwrap()];
        list.replace((0..length).map(|number| (list.id(&number), round)));
    };
    publish(1);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (mut newest, mut lookups) = (1, 0_u64);
                while !is_over.load(Ordering::Relaxed) || lookups < 10_000 {
                    for number in 0..4 {
                        let found = list.until_ns(&number).map_or(0, u64::from);
                        assert!(found >= newest, "{found} after {newest}");
                        newest = found;
                        lookups += 1;
                    }
                }
            });
        }
        for round in 2..4_000 {
            publish(round);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Names of any bytes are read as they were written, and the file has the documented form.
#[test]
fn a_file_holds_what_was_written() {
    let path = folder("a_file_holds_what_was_written").join("list");
    let all: Vec<u8> = (0..=255).collect();
    let names = [&b"10.0.0.7"[..], b" a b ", b"\\x41", b"\t\n", "\u{e9}".as_bytes(), &all];
    write(&path, names.iter().zip(3..).map(|(name, until_s)| (*name, until_s))).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let start = "# rategate deny list 1\n3\t10.0.0.7\n4\t a b \n\
                 5\t\\x5cx41\n6\t\\x09\\x0a\n7\t\\xc3\\xa9\n8\t\\x00";
    assert!(text.starts_with(start), "{text}");
    let entries = read(&path, 6).unwrap();
    let expected =
        names.iter().zip(3..).map(|(name, until_s)| Entry { name: name.to_vec(), until_s });
    assert_eq!(entries, expected.collect::<Vec<_>>());
    assert!(!path.with_extension("new").exists());
    assert_eq!(entries[0].until_ns(), 3 * SECOND_NS);
    assert_eq!(Entry { name: Vec::new(), until_s: u64::MAX }.until_ns(), u64::MAX);
}

/// A reader of a file that is being written reads one list or the other.
#[test]
fn a_file_is_never_half_written() {
    let path = folder("a_file_is_never_half_written").join("list");
    let names: Vec<String> = (0..9_000).map(|number| format!("caller {number}")).collect();
    let publish = |length: usize| {
        write(&path, names[..length].iter().map(|name| (name.as_bytes(), 7))).unwrap();
    };
    publish(9_000);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let length = read(&path, 9_000).unwrap().len();
                assert!([9_000, 3_000].contains(&length), "{length}");
            }
        });
        for round in 0..60 {
            publish([3_000, 9_000][round % 2]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn errors_of_a_file_name_the_line() {
    let path = folder("what_is_wrong").join("list");
    let long = escaped(&vec![0; MAX_NAME_BYTES + 1]);
    let heading = "# rategate deny list 1\n";
    for (text, line_number, problem) in [
        (String::new(), 1, InvalidLine::Heading),
        ("7\ta\n".to_owned(), 1, InvalidLine::Heading),
        ("# rategate deny list 1".to_owned(), 1, InvalidLine::Heading),
        ("# rategate deny list 2\n".to_owned(), 1, InvalidLine::Heading),
        (format!("{heading}7\ta\n7 b\n"), 3, InvalidLine::Malformed),
        (format!("{heading}\n"), 2, InvalidLine::Malformed),
        (format!("{heading}7\t\n"), 2, InvalidLine::Malformed),
        (format!("{heading}+7\ta\n"), 2, InvalidLine::Malformed),
        (format!("{heading}99999999999999999999\ta\n"), 2, InvalidLine::Malformed),
        (format!("{heading}7\ta\\\n"), 2, InvalidLine::Escape),
        (format!("{heading}7\ta\\x+1\n"), 2, InvalidLine::Escape),
        (format!("{heading}7\t\u{e9}\n"), 2, InvalidLine::Escape),
        (format!("{heading}7\ta\tb\n"), 2, InvalidLine::Escape),
        (format!("{heading}7\t{long}\n"), 2, InvalidLine::NameTooLong),
        (format!("{heading}7\t{}\n", "a".repeat(2_000)), 2, InvalidLine::NameTooLong),
        (format!("{heading}7\ta\n7\tb"), 3, InvalidLine::Cut),
        (format!("{heading}7\ta\n7\tb\n7\tc\n"), 4, InvalidLine::TooMany { max_entries: 2 }),
    ] {
        fs::write(&path, &text).unwrap();
        match read(&path, 2) {
            Err(FileError::InvalidLine { line: at, problem: what }) => {
                assert_eq!((at, what), (line_number, problem), "{text}");
            }
            read => panic!("{text}: {read:?}"),
        }
    }
    assert!(matches!(read(path.with_extension("none"), 2), Err(FileError::Io(_))));
    let shown = FileError::InvalidLine { line: 3, problem: InvalidLine::Cut }.to_string();
    assert!(shown.starts_with("line 3: the line has no end"), "{shown}");
}

/// A file that is cut, wrong or missing is refused, and the list stays; the next check takes a
/// whole one.
#[test]
fn a_file_is_followed_and_a_bad_one_refused() {
    let path = folder("a_file_is_followed").join("list");
    let list: DenyList = DenyList::new(2);
    let file = DenyFile::new(&path, list.clone());
    assert!(matches!(file.refresh(), Err(FileError::Io(_))));
    let replaced =
        |listed| Refreshed::Replaced { entries: Replaced { listed, left_out: 0 }, unknown: 0 };
    write(&path, [(&b"a"[..], 7), (b"b", 8)]).unwrap();
    assert_eq!(file.refresh().unwrap(), replaced(2));
    assert_eq!(file.refresh().unwrap(), Refreshed::Unchanged);
    assert_eq!(list.denied_for_at(b"a", SECOND_NS), Some(Duration::from_secs(6)));
    for bad in [
        "mine\n",
        "# rategate deny list 1\n9\tc\n9\td",
        "# rategate deny list 1\n1\tc\n1\td\n1\te\n",
    ] {
        fs::write(&path, bad).unwrap();
        for _ in 0..2 {
            assert!(matches!(file.refresh(), Err(FileError::InvalidLine { .. })), "{bad}");
        }
        assert_eq!((list.len(), list.replacements()), (2, 1), "{bad}");
    }
    fs::remove_file(&path).unwrap();
    assert!(file.refresh().is_err() && list.denied_for_at(b"b", 0).is_some());
    // An equal length, in another file.
    for until_s in [5, 6] {
        write(&path, [(&b"a"[..], until_s)]).unwrap();
        assert_eq!(file.refresh().unwrap(), replaced(1));
        assert_eq!(list.until_ns(b"a").map(u64::from), Some(until_s * SECOND_NS));
    }
    assert_eq!(list.until_ns(b"b"), None);
}

#[test]
fn a_file_is_checked_no_more_often_than_configured() {
    let path = folder("a_file_is_looked_at").join("list");
    let list: DenyList<u32> = DenyList::new(9);
    let number = |list: &DenyList<u32>, name: &[u8]| {
        let number: u32 = std::str::from_utf8(name).ok()?.parse().ok()?;
        Some(list.id(&number))
    };
    let file = DenyFile::with_names(&path, list.clone(), number).every(Duration::from_nanos(100));
    assert!(file.refresh_if_due(0).unwrap().is_err());
    write(&path, [(&b"17"[..], 1), (b"x", 1)]).unwrap();
    assert!(file.refresh_if_due(99).is_none());
    let entries = Replaced { listed: 1, left_out: 0 };
    let refreshed = file.refresh_if_due(100).unwrap().unwrap();
    assert_eq!(refreshed, Refreshed::Replaced { entries, unknown: 1 });
    assert_eq!(list.until_ns(&17).map(u64::from), Some(SECOND_NS));
    assert!(file.refresh_if_due(199).is_none());
    assert_eq!(file.refresh_if_due(250).unwrap().unwrap(), Refreshed::Unchanged);
    assert!(file.refresh_if_due(349).is_none());
}
