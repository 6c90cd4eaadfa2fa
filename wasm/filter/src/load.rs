//! Load at arrival, of the service and of each class: a gauge and a counter of the proxy, which all
//! workers share, and this worker's window over the counter.

use spillway_contracts::*;
use spillway_filter_core::Direction;
use spillway_filter_core::classes::{Classes, Slot, Table};
use spillway_filter_core::load::{Load, LoadWindow, Loads};

use crate::host::Host;
use crate::stats::{Metric, named};

/// Key of the classes that have stats of their own, of one direction.
const CHOSEN: &str = "spillway_{direction}_classes";

/// The table of these classes, as the proxy shares it between workers.
struct Chosen<'a, H> {
    host: &'a H,
    key: &'a str,
    read: Vec<u8>,
}

impl<H: Host> Table for Chosen<'_, H> {
    fn read(&mut self) -> Option<(&[u8], u32)> {
        let (table, version) = self.host.shared(self.key)?;
        self.read = table;
        Some((&self.read, version))
    }

    fn replace(&mut self, table: &[u8], version: u32) -> bool {
        self.host.share(self.key, table, version)
    }
}

struct Counted {
    in_flight: Metric,
    arrivals: Metric,
    window: LoadWindow,
}

impl Counted {
    fn define(host: &impl Host, in_flight: &str, arrivals: &str, now_ns: u64) -> Option<Self> {
        let (in_flight, arrivals) = (Metric::gauge(host, in_flight)?, Metric::counter(host, arrivals)?);
        let mut counted = Self { in_flight, arrivals, window: LoadWindow::default() };
        counted.sample(host, now_ns);
        Some(counted)
    }

    /// The request that arrives is in flight, and is no arrival before itself.
    fn enter(&self, host: &impl Host, now_ns: u64) -> Option<Load> {
        let before = self.arrivals.get(host);
        self.count(host);
        Some(Load { in_flight: self.in_flight.get(host)?, arrival_rate: self.window.rate(now_ns, before?) })
    }

    fn count(&self, host: &impl Host) {
        self.arrivals.add(host, 1);
        self.in_flight.add(host, 1);
    }

    fn sample(&mut self, host: &impl Host, now_ns: u64) {
        if let Some(count) = self.arrivals.get(host) {
            self.window.sample(now_ns, count);
        }
    }
}

/// One request's share of the gauges, to be given back once.
#[derive(Clone, Copy)]
pub struct Share(Option<Slot>);

/// Load of one direction of one proxy, as one worker sees it.
pub struct LoadBook<H> {
    host: H,
    direction: Direction,
    service: Counted,
    classes: Classes<Counted>,
    chosen: String,
}

impl<H: Host> LoadBook<H> {
    /// None where the proxy defines no stats.
    pub fn define(host: H, direction: Direction, now_ns: u64) -> Option<Self> {
        let name = |template| named(template, direction, "");
        let service =
            Counted::define(&host, &name(FILTER_STAT_IN_FLIGHT), &name(FILTER_STAT_ARRIVALS), now_ns)?;
        Some(Self { host, direction, service, classes: Classes::default(), chosen: name(CHOSEN) })
    }

    /// Counts a request in; tells the load that it meets where that is asked for: inbound, where it is
    /// the load that the application feels. Outbound it is only counted.
    pub fn enter(&mut self, class: Option<&str>, now_ns: u64) -> (Share, Option<Loads>) {
        if self.direction == Direction::Outbound {
            self.service.count(&self.host);
            return (Share(None), None);
        }
        let slot = class.and_then(|class| self.slot(class, now_ns));
        let of_class = slot
            .and_then(|slot| self.classes.get(slot))
            .and_then(|counted| counted.enter(&self.host, now_ns));
        let service = self.service.enter(&self.host, now_ns);
        // Classes beyond the bound are counted together, which is no class's load.
        let own = of_class.filter(|_| matches!(slot, Some(Slot::Own(_))));
        (Share(slot), service.map(|service| Loads { service, class: own }))
    }

    /// Counts it out.
    pub fn leave(&self, share: Share) {
        self.service.in_flight.add(&self.host, -1);
        if let Some(counted) = share.0.and_then(|slot| self.classes.get(slot)) {
            counted.in_flight.add(&self.host, -1);
        }
    }

    /// Notes every arrivals counter for the rates over the last second.
    pub fn sample(&mut self, now_ns: u64) {
        self.service.sample(&self.host, now_ns);
        self.classes.iter_mut().for_each(|counted| counted.sample(&self.host, now_ns));
    }

    fn slot(&mut self, class: &str, now_ns: u64) -> Option<Slot> {
        let (host, direction) = (&self.host, self.direction);
        let mut chosen = Chosen { host, key: &self.chosen, read: Vec::new() };
        self.classes.slot(class, &mut chosen, |name| {
            let stat = |template| named(template, direction, name.unwrap_or(FILTER_STAT_CLASS_OVERFLOW));
            Counted::define(
                host,
                &stat(FILTER_STAT_CLASS_IN_FLIGHT),
                &stat(FILTER_STAT_CLASS_ARRIVALS),
                now_ns,
            )
        })
    }
}
