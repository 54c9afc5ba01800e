//! A store whose clock the test sets, through the debug functions, one call per decision.

use std::num::NonZeroU64;

use rategate::charge::Debt;
use rategate::store::{
    ChargeReply, EndReply, Grant, ReservationEnd, ReservationId, ReserveReply, StoreError, Verdict,
};
use rategate_redis::batch::{Batch, Extra, Verdicts};
use rategate_redis::charge::Charges;
use rategate_redis::command::{Command, Settings};
use rategate_redis::key::{Key, KeySpace};
use rategate_redis::library::Library;
use rategate_redis::plan::Plan;
use rategate_redis::reply::Decoded;
use rategate_redis::reserve::{Ends, Estimates};
use rategate_redis::returns;

pub(crate) use rategate_testkit::conformance::{denied, granted};
use rategate_testkit::redis::{Brand, Client, Server};

use super::value;

pub(crate) struct Store {
    /// Ends when it is dropped.
    _server: Server,
    pub(crate) client: Client,
}

pub(crate) fn key(name: &str) -> Key {
    KeySpace::new("t").unwrap().key(name.as_bytes())
}

/// Returns an id of so many.
pub(crate) fn id_of(number: u64) -> ReservationId {
    let mut id = [b'0'; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    ReservationId(id)
}

impl Store {
    pub(crate) fn start(brand: Brand) -> Self {
        let server = Server::start(brand);
        let mut client = server.client();
        client.ok(&Library::DEBUG.load());
        client.ok(&Library::LIVE.load());
        Self { _server: server, client }
    }

    /// Returns a store of each installed product.
    pub(crate) fn each() -> impl Iterator<Item = Self> {
        Brand::installed().into_iter().map(Self::start)
    }

    pub(crate) fn send(&mut self, command: Command, now_us: u64) -> rategate_redis::reply::Value {
        value(&self.client.ok(&command.at_us(now_us).fcall(Library::DEBUG)))
    }

    pub(crate) fn answer(&mut self, batch: &Batch<'_>, now_us: u64) -> Decoded<Verdicts> {
        let value = self.send(batch.decide(Settings::around_us(now_us)), now_us);
        batch.read(&value).unwrap()
    }

    pub(crate) fn acquire_with(
        &mut self,
        plan: &Plan,
        key: &Key,
        permits: u64,
        extra: Extra,
        now_us: u64,
    ) -> Verdict {
        let mut batch = Batch::new();
        batch.try_acquire(plan, key, permits, extra).unwrap();
        first(self.answer(&batch, now_us))
    }

    pub(crate) fn try_acquire(
        &mut self,
        plan: &Plan,
        key: &Key,
        permits: u64,
        now_us: u64,
    ) -> Verdict {
        self.acquire_with(plan, key, permits, Extra::default(), now_us)
    }

    pub(crate) fn peek(&mut self, plan: &Plan, key: &Key, permits: u64, now_us: u64) -> Verdict {
        let mut batch = Batch::new();
        batch.try_acquire(plan, key, permits, Extra::default()).unwrap();
        let value = self.send(batch.peek(Settings::around_us(now_us)), now_us);
        first(batch.read(&value).unwrap())
    }

    pub(crate) fn debit(&mut self, plan: &Plan, key: &Key, permits: u64, now_us: u64) -> Verdict {
        let mut batch = Batch::new();
        batch.debit(plan, key, permits, Extra::default()).unwrap();
        first(self.answer(&batch, now_us))
    }

    /// Charges permits. The reply also says how many states were corrected.
    pub(crate) fn charge(
        &mut self,
        plan: &Plan,
        key: &Key,
        (permits, debt): (u64, Debt),
        now_us: u64,
    ) -> Decoded<Result<ChargeReply, StoreError>> {
        let mut charges = Charges::new();
        charges.push(plan, key, permits, (debt, None)).unwrap();
        let value = self.send(charges.command(Settings::around_us(now_us)), now_us);
        let Decoded { now_us, corrected, is_marked, mut content } = charges.read(&value).unwrap();
        Decoded { now_us, corrected, is_marked, content: content.remove(0) }
    }

    /// Holds permits under an id for a time in microseconds.
    pub(crate) fn reserve(
        &mut self,
        plan: &Plan,
        key: &Key,
        permits: u64,
        (id, ttl_us): (u64, u64),
        now_us: u64,
    ) -> ReserveReply {
        let mut estimates = Estimates::new();
        let ttl_ns = NonZeroU64::new(ttl_us * 1_000).unwrap();
        estimates.push(plan, key, (permits, 0), (id_of(id), ttl_ns)).unwrap();
        let value = self.send(estimates.command(Settings::default()), now_us);
        estimates.read(&value).unwrap().content.remove(0).unwrap()
    }

    /// Ends a reservation.
    pub(crate) fn end(
        &mut self,
        plan: &Plan,
        key: &Key,
        (id, end): (u64, ReservationEnd),
        debt: Debt,
        now_us: u64,
    ) -> EndReply {
        let mut ends = Ends::new();
        ends.push(plan, key, id_of(id), end, debt).unwrap();
        let value = self.send(ends.command(Settings::default()), now_us);
        ends.read(&value).unwrap().content.remove(0).unwrap()
    }

    pub(crate) fn refund(
        &mut self,
        plan: &Plan,
        key: &Key,
        grant: &Grant,
        permits: u64,
        now_us: u64,
    ) -> u64 {
        let command =
            returns::refund(plan, key, &grant.receipt, permits, Settings::around_us(now_us))
                .unwrap();
        self.counts(plan, &command, now_us).content[0]
    }

    pub(crate) fn counts(
        &mut self,
        plan: &Plan,
        command: &Command,
        now_us: u64,
    ) -> Decoded<Vec<u64>> {
        let value = self.send(command.clone(), now_us);
        returns::read(plan, command, &value).unwrap()
    }
}

pub(crate) fn first(decoded: Decoded<Verdicts>) -> Verdict {
    decoded.content.into_iter().next().unwrap().unwrap()
}
