//! The messages of Envoy's quota service, byte by byte, compared with a third-party implementation.

#[path = "laws/rlqs.rs"]
mod laws;

use std::collections::HashMap;

use bytes::BytesMut;
use envoy_types::pb::envoy::service::rate_limit_quota::v3 as rlqs;
use envoy_types::pb::envoy::r#type::v3::rate_limit_strategy::Strategy as TheirStrategy;
use envoy_types::pb::google::protobuf::Duration;
use proptest::prelude::*;
use prost::Message;
use rategate_protocol::rlqs::{
    Action, MAX_USAGES, MalformedReport, Strategy as Ours, UsageReport, put_action,
};

use self::laws::check;
use self::rlqs::rate_limit_quota_response::bucket_action::BucketAction as TheirAction;
use self::rlqs::rate_limit_quota_usage_reports::BucketQuotaUsage;
use self::rlqs::{BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports};

fn reports() -> impl Strategy<Value = RateLimitQuotaUsageReports> {
    let duration = (any::<i64>(), any::<i32>());
    let duration = duration.prop_map(|(seconds, nanos)| Duration { seconds, nanos });
    let bucket = prop::collection::hash_map(".{0,3}", ".{0,5}", 0..5);
    let bucket = bucket.prop_map(|bucket| BucketId { bucket });
    let usage = (prop::option::of(bucket), prop::option::of(duration), any::<u64>(), any::<u64>());
    let usage =
        usage.prop_map(|(bucket_id, time_elapsed, num_requests_allowed, num_requests_denied)| {
            BucketQuotaUsage { bucket_id, time_elapsed, num_requests_allowed, num_requests_denied }
        });
    (".{0,5}", prop::collection::vec(usage, 0..5)).prop_map(|(domain, bucket_quota_usages)| {
        RateLimitQuotaUsageReports { domain, bucket_quota_usages }
    })
}

proptest! {
    #[test]
    fn reports_read_as_others_read_them(report in reports()) {
        check(&report.encode_to_vec());
    }

    #[test]
    fn damaged_reports_read_as_others_read_them(
        report in reports(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = report.encode_to_vec();
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        check(&bytes);
    }

    #[test]
    fn actions_are_read_as_they_were_written(
        buckets in prop::collection::vec(
            (prop::collection::btree_map(".{0,3}", ".{0,5}", 1..4), strategies(), any::<u64>()),
            0..5,
        ),
    ) {
        let mut out = BytesMut::new();
        for (bucket, strategy, ttl_ms) in &buckets {
            let entries = bucket.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
            let assign = |strategy: &Ours| Action::Assign { strategy: *strategy, ttl_ms: *ttl_ms };
            put_action(&mut out, entries, strategy.as_ref().map_or(Action::Abandon, assign));
        }
        let read = RateLimitQuotaResponse::decode(out.freeze()).unwrap();
        prop_assert_eq!(read.bucket_action.len(), buckets.len());
        for (read, (bucket, strategy, ttl_ms)) in read.bucket_action.into_iter().zip(buckets) {
            let expected: HashMap<_, _> = bucket.into_iter().collect();
            prop_assert_eq!(read.bucket_id.unwrap().bucket, expected);
            match (read.bucket_action.unwrap(), strategy) {
                (TheirAction::AbandonAction(_), None) => {}
                (TheirAction::QuotaAssignmentAction(theirs), Some(ours)) => {
                    let ttl = theirs.assignment_time_to_live.unwrap();
                    let ms = u64::try_from(ttl.seconds).unwrap() * 1000
                        + u64::try_from(ttl.nanos).unwrap() / 1_000_000;
                    prop_assert_eq!(ms, ttl_ms);
                    let strategy = theirs.rate_limit_strategy.unwrap().strategy.unwrap();
                    prop_assert_eq!(of_theirs(strategy), ours);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    #[test]
    fn any_bytes_read_as_others_read_them(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        check(&bytes);
    }
}

/// The other implementation takes an entry of a bucket for what follows, whatever its wire type is.
#[test]
fn entries_of_another_wire_type_are_none() {
    let bucket = |entries: &[u8]| {
        let length = u8::try_from(entries.len()).unwrap();
        [&[0x12, length + 2, 0x0a, length][..], entries].concat()
    };
    for entries in [&[0x0b, 0][..], &[0x0a, 0, 0x08, 0], &[0x0a, 0, 0x0d, 0, 0, 0, 0]] {
        let both = [bucket(&[0x0a, 0]), bucket(entries)].concat();
        check(&both);
        let read = UsageReport::read(&both);
        assert!(read.is_err() || read.unwrap().usages[1].bucket.len() == 1, "{entries:?}");
    }
}

fn strategies() -> impl Strategy<Value = Option<Ours>> {
    let bucket = (1_u32.., 1_u32.., 1..1_u64 << 40);
    let bucket = bucket.prop_map(|(max, per_fill, interval_s)| Ours::TokenBucket {
        max,
        per_fill,
        interval_s,
    });
    prop_oneof![
        Just(None),
        Just(Some(Ours::AllowAll)),
        Just(Some(Ours::DenyAll)),
        bucket.prop_map(Some)
    ]
}

fn of_theirs(strategy: TheirStrategy) -> Ours {
    match strategy {
        TheirStrategy::BlanketRule(0) => Ours::AllowAll,
        TheirStrategy::BlanketRule(1) => Ours::DenyAll,
        TheirStrategy::TokenBucket(bucket) => Ours::TokenBucket {
            max: bucket.max_tokens,
            per_fill: bucket.tokens_per_fill.unwrap().value,
            interval_s: bucket.fill_interval.unwrap().seconds.try_into().unwrap(),
        },
        other => panic!("{other:?}"),
    }
}

fn usage(entries: &[(&str, &str)]) -> BucketQuotaUsage {
    let bucket = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let bucket_id = Some(BucketId { bucket: bucket.collect() });
    BucketQuotaUsage { bucket_id, num_requests_allowed: 1, ..BucketQuotaUsage::default() }
}

#[test]
fn lists_are_bounded() {
    let report = |usages: usize| {
        let bucket_quota_usages = vec![usage(&[("a", "b")]); usages];
        RateLimitQuotaUsageReports { domain: "edge".into(), bucket_quota_usages }.encode_to_vec()
    };
    assert_eq!(UsageReport::read(&report(MAX_USAGES)).unwrap().usages.len(), MAX_USAGES);
    let too_many = MalformedReport::TooMany { what: "usages", max: MAX_USAGES };
    assert_eq!(UsageReport::read(&report(MAX_USAGES + 1)), Err(too_many));
    let bucket = |entries: usize| {
        let names: Vec<_> = (0..entries).map(|nth| nth.to_string()).collect();
        let entries: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        let bucket_quota_usages = vec![usage(&entries)];
        RateLimitQuotaUsageReports { bucket_quota_usages, ..Default::default() }.encode_to_vec()
    };
    assert_eq!(UsageReport::read(&bucket(64)).unwrap().usages[0].bucket.len(), 64);
    let too_many = MalformedReport::TooMany { what: "entries in a bucket", max: 64 };
    assert_eq!(UsageReport::read(&bucket(65)), Err(too_many));
    assert_eq!(UsageReport::read(&bucket(0)), Err(MalformedReport::NoBucket { usage: 0 }));
}
