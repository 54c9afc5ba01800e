//! Requests that count once: random stories in which one key gets each request up to five times
//! under an id, and another the same requests once, without one.

use std::collections::BTreeMap;

use rategate::charge::{Charged, Debt};
use rategate::store::{
    ChargeReply, EndOutcome, ReservationEnd, ReserveVerdict, Rule, StoreError, Verdict,
};

use super::Arena;
use super::client::{StoreClient, id_of};
use super::reservation_model::MEMORY_US;
use super::rules::{NOW_US, cases};
use super::story::{Stage, with_debts};

/// The time after that within which a store forgets an id.
const FORGETS_WITHIN_US: u64 = 2_000_000;

/// Runs all cases, for each way in which a debt ends. Returns the number of requests that counted.
///
/// # Panics
///
/// Panics where a request counts twice, or never.
pub fn suite(arena: &impl Arena) -> u64 {
    let counted = with_debts(cases()).map(|(seed, name, rules, typical_us, debt)| {
        let stage = Story::new(arena, &name, &rules, seed, debt).play(typical_us, 400);
        stage.assert_over(30, &["charged", "credited", "repeated"]);
        stage.assert_over(0, &["others", "forgotten"]);
        stage.counts["charged"] + stage.counts["credited"]
    });
    counted.sum()
}

/// A request that was made, with its outcome.
#[derive(Clone, Copy, Debug)]
enum Made {
    Charge(u64, Charged),
    Credit(u64, u64),
    Hold(u64),
}

struct Story<'a, A: Arena> {
    /// With the key whose requests have ids.
    stage: Stage<'a, A>,
    /// The client of the key whose requests have none.
    plain: StoreClient<A::Store>,
    debt: Debt,
    next_id: u64,
    /// The requests that were made, and when, by id.
    made: BTreeMap<u64, (u64, Made)>,
}

impl<'a, A: Arena> Story<'a, A> {
    fn new(arena: &'a A, name: &'a str, rules: &[(&str, Rule)], seed: u64, debt: Debt) -> Self {
        let stage = Stage::new(arena, name, rules, (seed, NOW_US));
        let plain = stage.client.with_key(&format!("{name}, each once"));
        Self { stage, plain, debt, next_id: 0, made: BTreeMap::new() }
    }

    fn play(mut self, typical_us: u64, steps: u64) -> Stage<'a, A> {
        for step in 0..steps {
            match self.below(8) {
                0..3 => {}
                3 => self.pass(1),
                _ => {
                    let us = self.below(typical_us * 2 + 1);
                    self.pass(us);
                }
            }
            let about = format!("{}, step {step}, at {} us", self.stage.name, self.stage.now_us);
            match self.below(10) {
                0..3 => self.charge(&about),
                3..5 => self.credit(&about),
                5..8 => self.again(&about),
                8 => self.take(&about),
                _ => self.hold(&about),
            }
            if self.below(100) == 0 {
                self.forget(&about);
            }
            assert_eq!(self.stage.client.remaining(), self.plain.remaining(), "{about}");
        }
        self.stage
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.stage.below(bound)
    }

    fn pass(&mut self, us: u64) {
        self.stage.pass(us);
        let now_us = self.stage.now_us;
        self.made.retain(|_, (at_us, _)| *at_us + MEMORY_US > now_us);
    }

    fn some_permits(&mut self) -> u64 {
        1 + self.below(self.stage.capacity.div_ceil(2))
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn charge(&mut self, about: &str) {
        let (permits, id) = (self.some_permits(), self.new_id());
        let seen = self.stage.client.charge_once(permits, self.debt, id_of(id));
        let expected = self.plain.charge(permits, self.debt);
        assert_eq!(seen, expected, "{about}: a charge of {permits}");
        let charged = expected.unwrap().charged;
        self.made.insert(id, (self.stage.now_us, Made::Charge(permits, charged)));
        self.stage.count("charged", 1);
        self.repeat(about, id);
    }

    fn credit(&mut self, about: &str) {
        let (permits, id) = (self.some_permits(), self.new_id());
        let seen = self.stage.client.credit_once(permits, id_of(id)).unwrap();
        let expected = self.plain.credit(permits).unwrap();
        let what = (seen.permits, seen.is_repeated);
        assert_eq!(what, (expected, false), "{about}: a credit of {permits}");
        self.made.insert(id, (self.stage.now_us, Made::Credit(permits, expected)));
        self.stage.count("credited", 1);
        self.repeat(about, id);
    }

    /// Sends an earlier request again, or another under its id.
    fn again(&mut self, about: &str) {
        let newest = u64::try_from(self.made.len().clamp(1, 20)).unwrap();
        let back = usize::try_from(self.below(newest)).unwrap();
        let Some((&id, &(_, made))) = self.made.iter().rev().nth(back) else { return };
        self.repeat(about, id);
        let about = format!("{about}: {made:?} as {id}, then another");
        let (id, permits, debt) = (id_of(id), self.some_permits(), self.debt);
        let other = Some(StoreError::OtherRequest);
        match made {
            Made::Charge(own, _) => {
                assert_eq!(self.stage.client.credit_once(own, id).err(), other, "{about}");
                if permits != own {
                    assert_eq!(
                        self.stage.client.charge_once(permits, debt, id).err(),
                        other,
                        "{about}"
                    );
                }
            }
            Made::Credit(own, _) => {
                assert_eq!(self.stage.client.charge_once(own, debt, id).err(), other, "{about}");
                if permits != own {
                    assert_eq!(self.stage.client.credit_once(permits, id).err(), other, "{about}");
                }
            }
            Made::Hold(own) => {
                assert_eq!(self.stage.client.charge_once(own, debt, id).err(), other, "{about}");
                assert_eq!(self.stage.client.credit_once(own, id).err(), other, "{about}");
            }
        }
        if let Made::Charge(own, _) | Made::Credit(own, _) = made {
            let ended = self.stage.client.end(id, ReservationEnd::Cancel, debt).unwrap();
            assert_eq!((ended.outcome, ended.is_repeated), (EndOutcome::Unknown, false), "{about}");
            let held = self.stage.client.reserve(own, id, 1_000).unwrap().verdict;
            assert_eq!(held, ReserveVerdict::OtherPermits { permits: own }, "{about}");
        }
        self.stage.count("others", 1);
    }

    /// Sends a request up to four times more.
    fn repeat(&mut self, about: &str, id: u64) {
        let Some(&(_, made)) = self.made.get(&id) else { return };
        for again in 0..self.below(5) {
            let about = format!("{about}: {made:?} as {id}, sent again after {again} times");
            match made {
                Made::Charge(permits, charged) => {
                    let seen =
                        self.stage.client.charge_once(permits, self.debt, id_of(id)).unwrap();
                    let ChargeReply { charged: theirs, is_repeated, remaining, .. } = seen;
                    let expected = (charged, true, self.plain.remaining());
                    assert_eq!((theirs, is_repeated, remaining), expected, "{about}");
                }
                Made::Credit(permits, back) => {
                    let seen = self.stage.client.credit_once(permits, id_of(id)).unwrap();
                    assert_eq!((seen.permits, seen.is_repeated), (back, true), "{about}");
                }
                Made::Hold(_) => {}
            }
            self.stage.count("repeated", 1);
        }
    }

    /// Charges nothing, which leaves its id unused, and takes permits.
    fn take(&mut self, about: &str) {
        let (permits, id) = (self.some_permits(), self.new_id());
        let seen = self.stage.client.charge_once(0, self.debt, id_of(id)).unwrap();
        assert!(!seen.is_repeated && seen.charged.booked == 0, "{about}: {seen:?}");
        let left = self.stage.client.credit_once(permits, id_of(id)).unwrap().permits;
        assert_eq!(left, self.plain.credit(permits).unwrap(), "{about}: a credit of {permits}");
        let seen = matches!(self.stage.client.decide(permits).unwrap(), Verdict::Granted(_));
        let expected = matches!(self.plain.decide(permits).unwrap(), Verdict::Granted(_));
        assert_eq!(seen, expected, "{about}: {permits} permits");
    }

    /// Holds permits for as long as the other key has them, and ends them at once.
    fn hold(&mut self, about: &str) {
        let (permits, id) = (self.some_permits(), self.new_id());
        for client in [&self.stage.client, &self.plain] {
            let held = client.reserve(permits, id_of(id), 1_000).unwrap();
            if let ReserveVerdict::Denied { .. } = held.verdict {
                return;
            }
            let ended = client.end(id_of(id), ReservationEnd::Cancel, self.debt).unwrap();
            assert!(matches!(ended.outcome, EndOutcome::Cancelled(_)), "{about}: {ended:?}");
        }
        self.made.insert(id, (self.stage.now_us, Made::Hold(permits)));
    }

    /// Lets so much time pass that a charge is forgotten. A microsecond sooner it is still known.
    fn forget(&mut self, about: &str) {
        let charge = self.made.iter().find_map(|(id, (at_us, made))| match made {
            Made::Charge(permits, _) => Some((*id, *at_us, *permits)),
            _ => None,
        });
        let Some((id, at_us, permits)) = charge else { return };
        self.pass(at_us + MEMORY_US - 1 - self.stage.now_us);
        let (debt, named) = (self.debt, id_of(id));
        let seen = self.stage.client.charge_once(permits, debt, named).unwrap();
        assert!(seen.is_repeated, "{about}: forgotten too soon");
        self.pass(1 + FORGETS_WITHIN_US);
        let seen = self.stage.client.charge_once(permits, debt, named).unwrap();
        assert_eq!(seen, self.plain.charge(permits, debt).unwrap(), "{about}: forgotten");
        self.made.insert(id, (self.stage.now_us, Made::Charge(permits, seen.charged)));
        self.stage.count("forgotten", 1);
    }
}
