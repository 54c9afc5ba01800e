//! The events of a run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rategate_core::adaptive::{Controller, Outcome, Sample};
use rategate_core::random::Random;

use super::load::Instants;
use super::{Client, Measured, Server, Setup};

/// The step in which the possible calls are summed up.
const STEP_NS: u64 = 10_000_000;

/// A run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The results of the measures, in their order.
    pub measured: Vec<Measured>,
    /// Each call that ended, in the order of the ends.
    pub seen: Vec<Seen>,
}

/// A call that ended, and the limit then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The index of the client.
    pub client: usize,
    /// The sample that the controller received.
    pub sample: Sample,
    /// The limit after that.
    pub limit: u32,
}

/// The next event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client makes a call.
    Call { client: usize },
    /// A worker is done.
    Done { call: usize },
    /// The caller learns the outcome.
    Reply { call: usize },
    /// The caller gives a call up.
    GiveUp { call: usize },
    /// The number of workers changes, or a pause ends.
    Change,
}

struct Call {
    client: usize,
    start_ns: u64,
    work_ns: u64,
    is_refused: bool,
    is_over: bool,
}

struct Caller<'s, C> {
    controller: C,
    in_flight: u32,
    /// The index of the caller whose limit its calls have: its own, or that of another.
    limit: usize,
    instants: Instants<'s>,
    /// Draws its calls, unless a load has them, and their work.
    random: Random,
}

struct World<'s, C> {
    setup: &'s Setup,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    caused: u64,
    callers: Vec<Caller<'s, C>>,
    calls: Vec<Call>,
    queue: VecDeque<usize>,
    busy: u32,
    /// The end of the last pause that calls have waited for.
    resumes_ns: u64,
    run: Run,
}

impl Setup {
    /// Runs the setup, each client with a controller, of which `new` is told the index.
    pub fn run<'s, C: Controller>(&'s self, new: impl Fn(u64) -> C) -> Run {
        let clients = 0..self.clients.len();
        let caller = |(client, of): (u64, &'s Client)| {
            // Far apart, so that no two callers draw the same.
            let mut seeds = Random::new(self.seed.wrapping_add(client << 32));
            let random = Random::new(seeds.bits());
            let has_limit = |&other: &usize| other < self.clients.len();
            let limit = of.limit_of.filter(has_limit).unwrap_or(client as usize);
            Caller { controller: new(client), in_flight: 0, limit, instants: of.instants(), random }
        };
        let mut world = World {
            setup: self,
            now_ns: 0,
            events: BinaryHeap::new(),
            caused: 0,
            callers: (0..).zip(&self.clients).map(caller).collect(),
            calls: Vec::new(),
            queue: VecDeque::new(),
            busy: 0,
            resumes_ns: 0,
            run: Run { measured: self.measured(), seen: Vec::new() },
        };
        for client in clients {
            world.call_next(client);
        }
        for change_ns in self.server.workers.changes() {
            world.cause(change_ns, Event::Change);
        }
        world.play();
        world.run
    }

    /// Returns the measures of which nothing is known but what is possible.
    fn measured(&self) -> Vec<Measured> {
        let measured = |measure: &super::Measure| {
            let (mut at_ns, mut possible) = (measure.from_ns, 0_u128);
            while at_ns < measure.to_ns {
                let clients = self.clients.iter().enumerate();
                let made = clients.filter(|(client, _)| measure.is_of(*client));
                let made = made.map(|(_, client)| client.per_1000_s(at_ns, STEP_NS));
                let made = made.fold(0, u64::saturating_add);
                possible = possible.saturating_add(made.min(self.server.capacity(at_ns)).into());
                at_ns = at_ns.saturating_add(STEP_NS);
            }
            // In thousandths a second, each for a hundredth of one.
            let possible = u64::try_from(possible / 100_000).unwrap_or(u64::MAX);
            Measured { possible, served: vec![0; self.clients.len()], ..Measured::default() }
        };
        self.measures.iter().map(measured).collect()
    }

    fn end_ns(&self) -> u64 {
        self.measures.iter().map(|measure| measure.to_ns).max().unwrap_or(0)
    }
}

impl<C: Controller> World<'_, C> {
    fn play(&mut self) {
        let end_ns = self.setup.end_ns();
        while let Some(Reverse((at_ns, _, event))) = self.events.pop() {
            if at_ns >= end_ns {
                return;
            }
            self.now_ns = at_ns;
            match event {
                Event::Call { client } => self.make(client),
                Event::Done { call } => {
                    self.busy -= 1;
                    self.reply(call);
                }
                Event::Reply { call } => self.end(call, false),
                Event::GiveUp { call } => self.end(call, true),
                Event::Change => {}
            }
            self.work();
        }
    }

    fn cause(&mut self, at_ns: u64, event: Event) {
        self.caused += 1;
        self.events.push(Reverse((at_ns, self.caused, event)));
    }

    fn server(&self) -> &Server {
        &self.setup.server
    }

    fn pause_end_ns(&self) -> Option<u64> {
        self.server().pause?.end_ns(self.now_ns)
    }

    fn call_next(&mut self, client: usize) {
        let caller = &mut self.callers[client];
        if let Some(at_ns) = caller.instants.next_ns(self.now_ns, &mut caller.random) {
            self.cause(at_ns, Event::Call { client });
        }
    }

    /// Counts something of a client in the measures of now.
    fn count(&mut self, client: usize, count: impl Fn(&mut Measured)) {
        for (measure, measured) in self.setup.measures.iter().zip(&mut self.run.measured) {
            let is_now = (measure.from_ns..measure.to_ns).contains(&self.now_ns);
            if is_now && measure.is_of(client) {
                count(measured);
            }
        }
    }

    /// Makes a call, and sends it if the limit has room.
    fn make(&mut self, client: usize) {
        self.call_next(client);
        self.count(client, |measured| measured.made += 1);
        let caller = &mut self.callers[client];
        // Drawn for calls that are not sent, too.
        let work_ns = self.setup.server.service.draw_ns(&mut caller.random);
        let limit = caller.limit;
        let share = self.setup.clients[client].share;
        let limit = &mut self.callers[limit];
        let in_share = share.of(limit.controller.limit().into());
        if u64::from(limit.in_flight) >= in_share {
            return;
        }
        limit.in_flight += 1;
        if !share.is_whole() && u64::from(limit.in_flight) == in_share {
            limit.controller.fill_share(limit.in_flight, self.now_ns);
        }
        let call = self.calls.len();
        self.count(client, |measured| measured.sent += 1);
        let slowness = u128::from(self.server().slowness.between(self.now_ns));
        let work_ns = u128::from(work_ns).saturating_mul(slowness) / 1_000;
        let work_ns = u64::try_from(work_ns).unwrap_or(u64::MAX);
        let is_full = self.queue.len() >= self.server().queue;
        let is_paused = self.pause_end_ns().is_some();
        let is_busy = is_paused || self.busy >= self.server().workers.at(self.now_ns);
        let is_refused = is_full && is_busy;
        let (start_ns, is_over) = (self.now_ns, false);
        self.calls.push(Call { client, start_ns, work_ns, is_refused, is_over });
        let deadline_ns = self.now_ns.saturating_add(self.server().deadline_ns);
        self.cause(deadline_ns, Event::GiveUp { call });
        if is_refused { self.reply(call) } else { self.queue.push_back(call) }
    }

    fn reply(&mut self, call: usize) {
        let network_ns = self.server().network_ns.at(self.now_ns);
        self.cause(self.now_ns.saturating_add(network_ns), Event::Reply { call });
    }

    /// Gives idle workers the calls that wait.
    fn work(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let pause = self.server().pause;
        if let Some(end_ns) = self.pause_end_ns() {
            if self.resumes_ns < end_ns {
                self.resumes_ns = end_ns;
                self.cause(end_ns, Event::Change);
            }
            return;
        }
        while self.busy < self.server().workers.at(self.now_ns) {
            let Some(call) = self.queue.pop_front() else { return };
            let work_ns = self.calls[call].work_ns;
            self.busy += 1;
            let done_ns = pause.map_or_else(
                || self.now_ns.saturating_add(work_ns),
                |pause| pause.done_ns(self.now_ns, work_ns),
            );
            self.cause(done_ns, Event::Done { call });
        }
    }

    /// Ends a call for its caller, once.
    fn end(&mut self, call: usize, is_late: bool) {
        let call = &mut self.calls[call];
        if std::mem::replace(&mut call.is_over, true) {
            return;
        }
        let (client, is_refused) = (call.client, call.is_refused);
        let is_dropped = is_late || is_refused;
        let outcome = if is_dropped { Outcome::Dropped } else { Outcome::Served };
        let (start_ns, end_ns) = (call.start_ns, self.now_ns);
        let in_flight = self.callers[self.callers[client].limit].in_flight;
        let sample = Sample { start_ns, end_ns, in_flight, outcome };
        let latency_ns = end_ns.saturating_sub(start_ns);
        self.count(client, |measured| {
            if is_refused {
                measured.refused += 1;
            } else {
                measured.latencies_ns.push(latency_ns);
            }
            if is_late {
                measured.late += 1;
            } else if !is_refused {
                measured.served[client] += 1;
            }
        });
        let limit = self.callers[client].limit;
        let limit = &mut self.callers[limit];
        limit.in_flight -= 1;
        limit.controller.sample(sample);
        self.run.seen.push(Seen { client, sample, limit: limit.controller.limit() });
    }
}
