//! Snapshots: restored limiters decide as the saved ones would, by as much downtime as is
//! trusted. A file is whole, or it is refused.

use std::future::Future;
use std::io::{self, Read};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use fastrand::Rng;
use rategate::adaptive::{Adaptation, Bounds, Method};
use rategate::calendar::CalendarSpec;
use rategate::policy::Anchor;
use rategate::policy::Ledger;
use rategate::policy::Mode;
use rategate::policy::Ratio;
use rategate::policy::Schedule;
use rategate::policy::saved::{RestoreTarget, SavedError, save_state};
use rategate::snapshot::{
    Downtime, Header, MAX_KEY_BYTES, Record, SavedAt, Snapshot, SnapshotError, SnapshotReader,
    SnapshotWriter, VERSION,
};
use rategate::wait::CancelToken;
use rategate::{
    AdaptiveConcurrency, AdaptiveRate, AllOf, AnyPolicy, AsyncLimiter, BackfillPool, Clock,
    CommitLog, Concurrency, Decision, FixedWindow, Gcra, Limiter, ManualClock, MonotonicClock,
    Rate, SlidingLog, SlowStart, SystemClock, TwoTimeline, WarmUp,
};
use rategate_testkit::ns;

const S: u64 = 1_000_000_000;

/// Returns one limit of each policy, each mode and each form.
fn policies() -> Vec<(&'static str, AnyPolicy)> {
    let rate: Rate = "7/3s".parse().unwrap();
    let ramp = Schedule::ramp(Rate::NEVER, rate, 40 * S).unwrap();
    let log = SlidingLog::new(5, Duration::from_nanos(2 * S))
        .with_guard(Duration::from_nanos(S / 10))
        .unwrap();
    let ratio = Ratio::new(3, 2).unwrap();
    let timeline = |mode| TwoTimeline::new(rate, mode, Some(Duration::from_nanos(4 * S)));
    vec![
        ("gcra", Gcra::new(rate, 4).unwrap().into()),
        ("gcra_never", Gcra::new(Rate::NEVER, 4).unwrap().into()),
        ("gcra_unlimited", Gcra::new(Rate::UNLIMITED, 4).unwrap().into()),
        ("sliding_log", log.into()),
        ("sliding_log_grid", log.with_resolution(Duration::from_nanos(S / 4)).unwrap().into()),
        ("compact_log", SlidingLog::new(9, Duration::from_nanos(3 * S)).compact().into()),
        ("fixed_window", FixedWindow::new(5, Duration::from_nanos(2 * S), Anchor::Epoch).into()),
        (
            "fixed_window_first",
            FixedWindow::new(5, Duration::from_nanos(2 * S), Anchor::FirstCall).into(),
        ),
        (
            "pacer",
            TwoTimeline::new(
                rate,
                Mode::Batched { min_sleep_ns: S / 10 },
                Some(Duration::from_nanos(S)),
            )
            .into(),
        ),
        ("two_timeline_average", timeline(Mode::Average).into()),
        ("two_timeline_damped", timeline(Mode::from_compensation(0.25).unwrap()).into()),
        ("two_timeline_strict", timeline(Mode::Strict).into()),
        ("two_timeline_burst", timeline(Mode::Burst(ratio)).into()),
        ("two_timeline_ramp", TwoTimeline::on_schedule(ramp, Mode::Average, None).into()),
        (
            "warm_up",
            WarmUp::new(rate, Duration::from_secs(4)).unwrap().with_max_request(2).unwrap().into(),
        ),
        ("warm_up_never", WarmUp::new(Rate::NEVER, Duration::from_secs(4)).unwrap().into()),
        ("slow_start", SlowStart::new(log, Duration::from_secs(40)).unwrap().into()),
        (
            "slow_start_timeline",
            SlowStart::new(timeline(Mode::Average), Duration::from_secs(40)).unwrap().into(),
        ),
        ("backfill_pool", BackfillPool::new(4, ratio, Some(rate)).unwrap().into()),
        ("backfill_pool_by_hand", BackfillPool::new(4, ratio, None).unwrap().into()),
        ("concurrency", Concurrency::new(4).into()),
        ("commit_log", CommitLog::new(4, Duration::from_nanos(2 * S)).into()),
        (
            "adaptive_rate",
            AdaptiveRate::new(Rate::per_second(1), Rate::per_second(3)).burst(2).into(),
        ),
    ]
}

type OnClock = Limiter<ManualClock>;

/// Returns a limiter of this policy that has been used for a while, and its clock.
fn used(policy: AnyPolicy, seed: u64) -> (OnClock, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(100));
    let limiter = Limiter::with_clock(policy, clock.clone());
    let mut random = Rng::with_seed(seed);
    for _ in 0..30 {
        clock.advance(Duration::from_nanos(random.u64(..S)));
        let _ = limiter.try_acquire(1 + random.u64(..2));
        match random.u64(..8) {
            0 => drop(limiter.release(1)),
            1 => drop(limiter.refill(1)),
            2 => drop(limiter.try_hold(1, Duration::MAX).unwrap()),
            _ => {}
        }
    }
    (limiter, clock)
}

/// Returns the decisions of a limiter for 30 callers, one after another from an instant on.
fn answers(limiter: &OnClock, clock: &ManualClock, from_ns: u64) -> Vec<String> {
    let mut random = Rng::with_seed(7);
    clock.set(Duration::from_nanos(from_ns));
    let answer = |_| {
        clock.advance(Duration::from_nanos(random.u64(..S / 2)));
        let (peeked, left) = (limiter.peek(1).unwrap(), limiter.remaining().unwrap());
        let decided = match limiter.try_acquire(1 + random.u64(..2)) {
            Ok(Decision::Granted(grant)) => {
                let left = limiter.remaining().unwrap();
                format!("{} {} {left}", ns(grant.released_at()), ns(grant.scheduled_at()))
            }
            other => format!("{other:?}"),
        };
        format!("{peeked:?} {left} {decided}")
    };
    (0..30).map(answer).collect()
}

fn in_bytes(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write_to(&mut bytes).unwrap();
    bytes
}

/// Returns the snapshot as if it was saved at another wall-clock time.
fn saved_at_wall(snapshot: &Snapshot, wall_ns: u64) -> Snapshot {
    let mut json = serde_json::to_value(snapshot).unwrap();
    json["saved_at"]["wall_ns"] = wall_ns.into();
    serde_json::from_value(json).unwrap()
}

/// After a restart of 3 s, on a clock that goes on from the old one, each limiter decides every
/// call as it would have, from a file, from JSON and from TOML.
#[test]
fn a_restored_limiter_goes_on() {
    for (name, policy) in policies() {
        for seed in 0..40 {
            let (limiter, clock) = used(policy, seed);
            let snapshot = limiter.snapshot();
            assert_eq!(snapshot.saved_at().clock_ns(), clock.now_ns());
            let file = Snapshot::read_from(in_bytes(&snapshot).as_slice()).unwrap();
            let json = serde_json::to_string(&snapshot).unwrap();
            let toml = toml::to_string(&snapshot).unwrap();
            assert_eq!(file, snapshot, "{name}");
            assert_eq!(
                serde_json::from_str::<Snapshot>(&json).unwrap(),
                snapshot,
                "{name}: {json}"
            );
            assert_eq!(toml::from_str::<Snapshot>(&toml).unwrap(), snapshot, "{name}: {toml}");

            clock.advance(Duration::from_secs(3));
            let (now_ns, downtime) = (clock.now_ns(), Downtime::Exactly(Duration::from_secs(3)));
            // Operations in flight have ended.
            limiter.release(u64::MAX).unwrap();
            let later = ManualClock::new();
            later.set(Duration::from_nanos(now_ns));
            let restored =
                Limiter::restore_with_clock(policy, later.clone(), &file, downtime).unwrap();
            let ideal = answers(&limiter, &clock, now_ns);
            assert_eq!(answers(&restored, &later, now_ns), ideal, "{name}, seed {seed}");
        }
    }
}

/// Files are of version 1. Where this fails, the format has changed: give it a new version.
#[test]
fn a_changed_format_is_a_new_version() {
    let bounds = Bounds::new(1, 5, 9);
    let aimd = Adaptation::new(bounds).with_method(Method::Aimd).with_seed(3);
    let month = CalendarSpec::new("month", "Europe/Rome").unwrap();
    let more: [AnyPolicy; 3] = [
        AdaptiveConcurrency::new(1, 20).into(),
        AdaptiveConcurrency::following(aimd).into(),
        month.quota(5).unwrap().into(),
    ];
    let mut hasher = crc32fast::Hasher::new();
    for policy in policies().into_iter().map(|(_, policy)| policy).chain(more) {
        let snapshot = saved_at_wall(&used(policy, 1).0.snapshot(), 1_700_000_000 * S);
        hasher.update(&in_bytes(&snapshot));
    }
    assert_eq!((VERSION, hasher.finalize()), (1, 1_227_681_087));
}

/// In real time, the clock of a restored limiter goes on, so that permits are held no shorter and
/// no longer than needed.
#[test]
fn the_clock_goes_on_in_real_time() {
    let log = SlidingLog::new(2, Duration::from_nanos(3_600 * S));
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(1_000_000));
    let limiter = Limiter::with_clock(log, clock.clone());
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    clock.advance(Duration::from_secs(1_800));
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    let snapshot = limiter.snapshot();
    let hour = Downtime::Exactly(Duration::from_secs(600));
    let restored = Limiter::restore(log, &snapshot, hour).unwrap();
    let now_ns = ns(restored.now());
    assert!((1_002_400 * S..1_002_500 * S).contains(&now_ns), "{now_ns}");
    let wait = restored.peek(1).unwrap().unwrap();
    assert!(
        (1_100..=1_200).contains(&wait.as_secs()),
        "half an hour and ten minutes of an hour: {wait:?}"
    );

    // On a clock that has just started, they are held longer, from the clock's zero on.
    let young = ManualClock::new();
    let restored = Limiter::restore_with_clock(log, young, &snapshot, hour).unwrap();
    assert_eq!(restored.peek(1).unwrap(), Some(Duration::from_secs(3_600)));
}

/// Several limits under one limiter are saved and restored together, or not at all.
#[test]
fn several_limits_are_saved_together() {
    let policies: [AnyPolicy; 2] = [
        Gcra::new("1/s".parse().unwrap(), 5).unwrap().into(),
        SlidingLog::new(6, Duration::from_nanos(20 * S)).into(),
    ];
    let clock = ManualClock::new();
    let limiter: OnClock = Limiter::with_clock(AllOf::new(policies), clock.clone());
    assert!(limiter.try_acquire(4).unwrap().is_granted());
    clock.advance(Duration::from_nanos(S));
    let file = Snapshot::read_from(in_bytes(&limiter.snapshot()).as_slice()).unwrap();
    let nothing = Downtime::Exactly(Duration::ZERO);
    let restore = |policies: &[AnyPolicy]| {
        let policies = AllOf::new(policies.iter().copied());
        Limiter::restore_with_clock(policies, clock.clone(), &file, nothing)
    };
    let restored = restore(&policies).unwrap();
    for permits in 1..6 {
        assert_eq!(restored.peek(permits).unwrap(), limiter.peek(permits).unwrap());
    }
    assert_eq!(restored.remaining(), Ok(2));
    let fewer = restore(&policies[..1]).unwrap_err();
    assert!(matches!(fewer, SnapshotError::OtherCount { found: 2, policies: 1 }), "{fewer}");
    let other = restore(&[policies[1], policies[0]]).unwrap_err();
    assert!(
        matches!(other, SnapshotError::Limit(SavedError::OtherPolicy { saved: "gcra" })),
        "{other}"
    );
    let in_real_time = Limiter::restore(AllOf::new(policies), &file, nothing).unwrap();
    assert!(ns(in_real_time.now()) >= S);
    let one = Limiter::restore(policies[0], &file, nothing).unwrap_err();
    assert!(matches!(one, SnapshotError::OtherCount { found: 2, policies: 1 }), "{one}");
}

/// Restoring applies new numbers as `reconfigure` does, but never another policy.
#[test]
fn other_numbers_come_into_force() {
    let clock = ManualClock::new();
    let limiter =
        Limiter::with_clock(Gcra::new("1/s".parse().unwrap(), 10).unwrap(), clock.clone());
    assert!(limiter.try_acquire(10).unwrap().is_granted());
    clock.advance(Duration::from_secs(4));
    let snapshot = limiter.snapshot();
    let faster = Gcra::new("10/s".parse().unwrap(), 20).unwrap();
    let downtime = Downtime::Exactly(Duration::ZERO);
    let restored = Limiter::restore_with_clock(faster, clock.clone(), &snapshot, downtime).unwrap();
    limiter.reconfigure(faster).unwrap();
    assert_eq!(restored.remaining(), Ok(4), "earned at the old rate");
    assert_eq!(restored.remaining(), limiter.remaining());
    assert_eq!(restored.peek(20), limiter.peek(20));
    let log = SlidingLog::new(10, Duration::from_nanos(S));
    let other = Limiter::restore_with_clock(log, clock, &snapshot, downtime).unwrap_err();
    assert!(
        matches!(other, SnapshotError::Limit(SavedError::OtherPolicy { saved: "gcra" })),
        "{other}"
    );
    assert_eq!(other.to_string(), "the limit is of another policy, gcra");
}

/// The wall clock determines the downtime. Set back, no time has passed; a jump forward counts
/// for no more than the caller allows.
#[test]
fn the_wall_clock_is_trusted_as_far_as_the_caller_says() {
    let bucket = Gcra::new("1/s".parse().unwrap(), 10_000).unwrap();
    let limiter = Limiter::with_clock(bucket, ManualClock::new());
    assert!(limiter.try_acquire(10_000).unwrap().is_granted());
    let snapshot = limiter.snapshot();
    let wall_ns = snapshot.saved_at().wall_ns();
    assert!(wall_ns > 1_700_000_000 * S, "after 2023");
    let earned = |saved: &Snapshot, downtime| {
        let clock = ManualClock::new();
        clock.set(Duration::from_secs(5_000));
        Limiter::restore_with_clock(bucket, clock, saved, downtime).unwrap().remaining().unwrap()
    };
    let minute = Duration::from_secs(60);
    let long_ago = saved_at_wall(&snapshot, wall_ns - 600 * S);
    assert!((600..1_000).contains(&earned(&long_ago, Downtime::Wall)));
    assert_eq!(earned(&long_ago, Downtime::AtMost(minute)), 60);
    assert_eq!(earned(&long_ago, Downtime::Exactly(minute)), 60);
    assert_eq!(earned(&long_ago, Downtime::Exactly(Duration::ZERO)), 0);
    let set_back = saved_at_wall(&snapshot, wall_ns + 600 * S);
    assert_eq!(earned(&set_back, Downtime::Wall), 0);
    assert_eq!(earned(&set_back, Downtime::AtMost(minute)), 0);
    let never = saved_at_wall(&snapshot, u64::MAX);
    assert_eq!(earned(&never, Downtime::Wall), 0);
}

/// Promises count as taken, and no new call starts before them. Waiters are not saved, and keep
/// waiting on the old limiter.
#[test]
fn promises_count_as_taken_and_waiters_do_not() {
    let log = SlidingLog::new(1, Duration::from_nanos(S));
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(log, clock.clone());
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    let promised = limiter.limiter().reserve(1).unwrap();
    assert_eq!(ns(promised.promised_at()), S);
    let mut waiting = pin!(limiter.acquire(1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    let snapshot = limiter.limiter().snapshot();
    let downtime = Downtime::Exactly(Duration::ZERO);
    let restored = Limiter::restore_with_clock(log, clock.clone(), &snapshot, downtime).unwrap();
    assert_eq!(restored.peek(1).unwrap(), Some(Duration::from_secs(2)));
    assert_eq!(limiter.limiter().peek(1).unwrap(), Some(Duration::from_secs(3)));
    clock.advance(Duration::from_secs(2));
    assert!(waiting.as_mut().poll(&mut context).is_ready());
    limiter.close();
    assert_eq!(limiter.limiter().snapshot().limits(), 1, "a closed limiter can be saved");
}

/// A file that ends early is refused, and so is one with any single bit flipped. Bytes after the
/// end mark are not read.
#[test]
fn a_file_is_whole_or_refused() {
    for (name, policy) in policies() {
        let bytes = in_bytes(&used(policy, 3).0.snapshot());
        for end in 0..bytes.len() {
            let torn = Snapshot::read_from(&bytes[..end]).unwrap_err();
            let at_byte = u64::try_from(end).unwrap();
            assert!(matches!(torn, SnapshotError::Torn { at_byte: at } if at == at_byte), "{torn}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut turned = bytes.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            let refused = Snapshot::read_from(turned.as_slice());
            assert!(refused.is_err(), "{name}: bit {bit} turned");
        }
        let mut longer = bytes.clone();
        longer.extend(b"something else");
        let mut input = longer.as_slice();
        assert!(Snapshot::read_from(&mut input).is_ok());
        assert_eq!(input, b"something else", "no byte after the end is read");
    }
}

/// A file that is no snapshot is refused as such, and so is one of another version, which no
/// checksum can verify.
#[test]
fn a_foreign_file_is_refused() {
    let limiter = Limiter::new(SlidingLog::new(1, Duration::from_nanos(S)));
    let bytes = in_bytes(&limiter.snapshot());
    for foreign in [&b"[limits]\nrate = \"5/s\"\n"[..], b"\x89PNG\r\n\x1a\n........", b"x"] {
        let refused = Snapshot::read_from(foreign).unwrap_err();
        assert!(matches!(refused, SnapshotError::NotASnapshot), "{refused}");
    }
    for version in [0, VERSION + 1] {
        let mut other = bytes.clone();
        other[8..10].copy_from_slice(&version.to_le_bytes());
        let refused = Snapshot::read_from(other.as_slice()).unwrap_err();
        assert!(matches!(refused, SnapshotError::OtherVersion { found } if found == version));
        let says = format!("snapshot version {version} is not supported: only 1 is");
        assert_eq!(refused.to_string(), says);
    }
    let json = serde_json::to_string(&limiter.snapshot()).unwrap();
    let newer = json.replace("\"version\":1", "\"version\":2");
    let refused = serde_json::from_str::<Snapshot>(&newer).unwrap_err();
    assert!(refused.to_string().contains("version 2"), "{refused}");
    let negative = json.replace("\"permits\":1", "\"permits\":-1");
    assert!(serde_json::from_str::<Snapshot>(&negative).is_err());
}

/// Returns the blocks of a file, after its header.
fn blocks(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut blocks) = (&file[10..], Vec::new());
    while !rest.is_empty() {
        let length = u32::from_le_bytes(*rest[1..].first_chunk().unwrap());
        let (block, more) = rest.split_at(usize::try_from(length).unwrap() + 9);
        blocks.push(block.to_vec());
        rest = more;
    }
    blocks
}

/// Returns a file of these blocks, with correct checksums.
fn sealed(blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut file = b"\x89RGS\r\n\x1a\n\x01\x00".to_vec();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&file);
    for block in blocks {
        let body = &block[..block.len() - 4];
        hasher.update(body);
        file.extend(body);
        file.extend(hasher.clone().finalize().to_le_bytes());
    }
    file
}

/// Returns a stream of so many records, under one log.
fn stream(records: u64, of: u8) -> Vec<u8> {
    let log = SlidingLog::new(50, Duration::from_nanos(S)).compact();
    let header = Header::new(SavedAt::now(7 * S), [log.into()]);
    let mut writer = SnapshotWriter::new(Vec::new(), header).unwrap();
    for key in 0..records {
        let mut state = Ledger::new(log, 0);
        let _ = state.try_acquire(6 * S + key, 1 + key % 9).unwrap();
        let mut record = Record { key: key.to_le_bytes().to_vec(), ..Record::default() };
        record.key.push(of);
        save_state(state.limits().only().unwrap(), 7 * S, &mut record.state);
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap()
}

/// A reader that records the largest buffer it was given.
struct Watched<'a> {
    bytes: &'a [u8],
    max_read: &'a mut usize,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        *self.max_read = (*self.max_read).max(buffer.len());
        self.bytes.read(buffer)
    }
}

/// A stream of any length is read block by block, and its end shows that it was whole.
#[test]
fn a_table_streams_in_little_memory() {
    let records = 40_000;
    let file = stream(records, 0);
    let mut max_read = 0;
    let reader = SnapshotReader::new(Watched { bytes: &file, max_read: &mut max_read }).unwrap();
    let log = SlidingLog::new(50, Duration::from_nanos(S)).compact();
    let target = RestoreTarget::new(log.into(), reader.header().policies()[0]).unwrap();
    let since = reader.header().saved_at().going_on(Downtime::Exactly(Duration::ZERO));
    assert_eq!((since.now_ns, since.elapsed_ns), (7 * S, 0));
    let mut came = 0;
    for record in reader {
        let record = record.unwrap();
        assert_eq!(record.key[..8], u64::to_le_bytes(came));
        let state = target.state(&record.state, since).unwrap();
        assert_eq!(state.remaining(7 * S), 50 - (1 + came % 9) * u64::from(came > 0));
        came += 1;
    }
    assert_eq!(came, records);
    assert!(max_read <= 4 * 65_536, "{max_read} bytes at a time");

    let mut torn = SnapshotReader::new(&file[..file.len() - 1]).unwrap();
    let whole = torn.by_ref().take_while(Result::is_ok).count();
    assert_eq!(u64::try_from(whole).unwrap(), records, "each block is verified");
    assert!(torn.next().is_none(), "no record follows an error");
    let last = SnapshotReader::new(&file[..file.len() - 1]).unwrap().last().unwrap();
    assert!(matches!(last, Err(SnapshotError::Torn { .. })));
    let not_one = Snapshot::read_from(file.as_slice()).unwrap_err();
    assert!(matches!(not_one, SnapshotError::NotOneLimiter), "{not_one}");
}

/// No block can be left out, repeated, swapped or taken from another file.
#[test]
fn blocks_stand_where_they_were_written() {
    let (file, other) = (stream(20_000, 0), stream(20_000, 1));
    let (own, foreign) = (blocks(&file), blocks(&other));
    assert!(own.len() > 5);
    let joined = |blocks: &[Vec<u8>]| [&file[..10], &blocks.concat()].concat();
    let read = |file: &[u8]| {
        SnapshotReader::new(file)
            .and_then(|mut reader| reader.try_for_each(|record| record.map(drop)))
    };
    assert!(read(&joined(&own)).is_ok() && read(&sealed(&own)).is_ok());
    for at in 0..own.len() {
        let mut changed = own.clone();
        changed[at] = foreign[at].clone();
        assert!(read(&joined(&changed)).is_err() || own[at] == foreign[at], "foreign {at}");
        let mut changed = own.clone();
        changed.remove(at);
        assert!(read(&joined(&changed)).is_err(), "without {at}");
        if at + 1 < own.len() {
            let mut changed = own.clone();
            changed.insert(at, own[at].clone());
            assert!(read(&joined(&changed)).is_err(), "twice {at}");
            let mut changed = own.clone();
            changed.swap(at, at + 1);
            assert!(read(&joined(&changed)).is_err(), "swapped {at}");
        }
    }
    // Even with correct checksums, the end has the number of records.
    let mut fewer = own.clone();
    fewer.remove(2);
    assert!(matches!(read(&sealed(&fewer)), Err(SnapshotError::Malformed { .. })));
}

/// Any bytes, with correct checksums or without, are a snapshot or refused.
#[test]
fn any_bytes_are_a_snapshot_or_refused() {
    let (mut whole, mut refused) = (0, 0);
    for seed in 0..6_000_u64 {
        let mut random = Rng::with_seed(seed);
        let (_, policy) = policies()[usize::try_from(seed % 19).unwrap()];
        let mut blocks = blocks(&in_bytes(&used(policy, seed % 5).0.snapshot()));
        for _ in 0..=random.u64(..3) {
            let at = random.usize(..blocks.len());
            let block = &mut blocks[at];
            let index = random.usize(..block.len());
            block[index] = random.u8(..);
        }
        let bytes = if random.u64(..4) == 0 { blocks.concat() } else { sealed(&blocks) };
        let mut max_read = 0;
        match Snapshot::read_from(Watched { bytes: &bytes, max_read: &mut max_read }) {
            Ok(snapshot) => {
                whole += 1;
                let clock = ManualClock::new();
                clock.set(Duration::from_secs(200));
                let downtime = Downtime::Exactly(Duration::from_secs(1));
                let clone = clock.clone();
                if let Ok(limiter) = Limiter::restore_with_clock(policy, clone, &snapshot, downtime)
                {
                    let _ = answers_of_any(&limiter, &clock);
                }
            }
            Err(_) => refused += 1,
        }
        assert!(max_read <= 4 * 65_536, "seed {seed}: {max_read} bytes at a time");
    }
    assert!(whole > 300 && refused > 300, "{whole} {refused}");
    for seed in 0..2_000 {
        let mut random = Rng::with_seed(seed);
        let noise: Vec<u8> = (0..random.u64(..200)).map(|_| random.u8(..)).collect();
        assert!(Snapshot::read_from(noise.as_slice()).is_err());
        let after = [b"\x89RGS\r\n\x1a\n\x01\x00", noise.as_slice()].concat();
        assert!(Snapshot::read_from(after.as_slice()).is_err());
    }
}

/// Returns the number of grants in some calls.
fn answers_of_any(limiter: &OnClock, clock: &ManualClock) -> usize {
    let answer = |_| {
        clock.advance(Duration::from_nanos(S / 3));
        limiter.try_acquire(1).is_ok()
    };
    (0..10).map(answer).filter(|answered| *answered).count()
}

/// A record that no reader would accept is not written.
#[test]
fn a_record_is_within_its_bounds() {
    let log = SlidingLog::new(1, Duration::from_nanos(S)).compact();
    let header = Header::new(SavedAt::now(0), [log.into()]);
    let mut writer = SnapshotWriter::new(Vec::new(), header).unwrap();
    let largest = Record { key: vec![1; MAX_KEY_BYTES], ..Record::default() };
    writer.write(&largest).unwrap();
    let longer = Record { key: vec![1; MAX_KEY_BYTES + 1], ..Record::default() };
    let refused = writer.write(&longer).unwrap_err();
    assert!(matches!(refused, SnapshotError::TooLong { bytes } if bytes == MAX_KEY_BYTES + 1));
    let other = Record { policy: 1, ..Record::default() };
    let refused = writer.write(&other).unwrap_err();
    assert!(matches!(refused, SnapshotError::NoSuchPolicy { policy: 1 }), "{refused}");
    let file = writer.finish().unwrap();
    let records: Vec<_> =
        SnapshotReader::new(file.as_slice()).unwrap().map(Result::unwrap).collect();
    assert_eq!(records, [largest]);
}

/// A new file replaces the previous one only when it is whole.
#[test]
fn a_file_replaces_another() {
    let folder = std::env::temp_dir().join(format!("rategate-snapshot-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("limiter.snapshot");
    let limiter = Limiter::new(Gcra::new("1/h".parse().unwrap(), 5).unwrap());
    for left in [4, 3] {
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        limiter.snapshot().save(&path).unwrap();
        let saved = Snapshot::load(&path).unwrap();
        let policy = Gcra::new("1/h".parse().unwrap(), 5).unwrap();
        let restored = Limiter::restore(policy, &saved, Downtime::Wall).unwrap();
        assert_eq!(restored.remaining(), Ok(left));
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(matches!(Snapshot::load(&path), Err(SnapshotError::Io(_))));
}

/// A table with two policies: each record is under its own.
#[test]
fn records_of_two_policies_load() {
    let (free, paid) = (
        SlidingLog::new(10, Duration::from_nanos(S)).compact(),
        SlidingLog::new(50, Duration::from_nanos(S)).compact(),
    );
    let saved_at = SavedAt::now(9 * S);
    let states = [("anna", free, 0, 4), ("bert", paid, 1, 33), ("", free, 0, 10)];
    let states = states.map(|(key, log, policy, permits)| {
        let mut limit = Ledger::new(log, 0);
        let _ = limit.try_acquire(8 * S + 5, permits).unwrap();
        let mut state = Vec::new();
        save_state(limit.limits().only().unwrap(), 9 * S, &mut state);
        Record { key: key.as_bytes().to_vec(), policy, state }
    });
    let header = Header::new(saved_at, [free.into(), paid.into()]);
    let mut writer = SnapshotWriter::new(Vec::new(), header).unwrap();
    for record in &states {
        writer.write(record).unwrap();
    }
    let file = writer.finish().unwrap();
    let reader = SnapshotReader::new(file.as_slice()).unwrap();
    assert_eq!(*reader.header().saved_at(), saved_at);
    assert_eq!(reader.header().policies(), [free.into(), paid.into()]);
    let records: Vec<Record> = reader.map(Result::unwrap).collect();
    assert_eq!(records, states);
    let target = RestoreTarget::new(paid.into(), paid.into()).unwrap();
    let since = saved_at.going_on(Downtime::Exactly(Duration::ZERO));
    let state = target.state(&records[1].state, since).unwrap();
    assert_eq!(state.remaining(since.now_ns), 17);
}

/// A clock that goes on from another one shows its reading from the start.
#[test]
fn real_clocks_start_at_the_given_time() {
    let clocks: [&dyn Clock; 2] = [
        &MonotonicClock::starting_at(Duration::from_secs(500)),
        &SystemClock::starting_at(Duration::from_secs(500)),
    ];
    for clock in clocks {
        let now_ns = clock.now_ns();
        assert!((500 * S..510 * S).contains(&now_ns), "{now_ns}");
        let _ = clock.wait(now_ns + 1_000_000, &CancelToken::new());
        assert!(clock.now_ns() >= now_ns + 1_000_000);
    }
    let at_the_end = MonotonicClock::starting_at(Duration::from_nanos(u64::MAX));
    assert_eq!(at_the_end.now_ns(), u64::MAX, "the clock stops at its end");
}
