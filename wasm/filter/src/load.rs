//! Measures the load at arrival, of the service and of each class.
//!
//! Each load consists of a gauge and a counter, which all workers of the proxy share, and this
//! worker's window over the counter.

use spillway_contracts::*;
use spillway_filter_core::Direction;
use spillway_filter_core::metering::classes::{Classes, Slot, Table};
use spillway_filter_core::metering::load::{Load, LoadWindow, Loads};
use spillway_filter_core::otlp::totals::Requests;

use crate::host::Host;
use crate::stats::{Metric, named};

/// Key under which workers share the names of the classes with their own stats, per direction.
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

    /// Counts a request in and returns its load. The request counts as in flight, but not in its
    /// own arrival rate.
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

/// Counters of requests by caller: a service of the mesh, or an unknown caller.
struct Made {
    entries: Metric,
    calls: Metric,
}

impl Made {
    fn define(host: &impl Host, direction: Direction, class: &str) -> Option<Self> {
        let counter = |template| Metric::counter(host, &named(template, direction, class));
        Some(Self { entries: counter(FILTER_STAT_CLASS_ENTRIES)?, calls: counter(FILTER_STAT_CLASS_CALLS)? })
    }

    fn totals<'a>(&self, host: &impl Host, class: Option<&'a str>) -> [Option<Requests<'a>>; 2] {
        [(true, self.entries), (false, self.calls)]
            .map(|(entry, metric)| Some(Requests { class, entry, count: metric.get(host)? }))
    }
}

/// The values kept per class.
struct OfClass {
    load: Counted,
    made: Made,
}

impl OfClass {
    /// Defines the stats of a class. Without a name, the stats are shared by all classes beyond the
    /// limit.
    fn define(host: &impl Host, direction: Direction, name: Option<&str>, now_ns: u64) -> Option<Self> {
        let name = name.unwrap_or(FILTER_STAT_CLASS_OVERFLOW);
        let stat = |template| named(template, direction, name);
        let (in_flight, arrivals) = (stat(FILTER_STAT_CLASS_IN_FLIGHT), stat(FILTER_STAT_CLASS_ARRIVALS));
        let load = Counted::define(host, &in_flight, &arrivals, now_ns)?;
        Some(Self { load, made: Made::define(host, direction, name)? })
    }
}

/// One request's share of the gauges, returned once when the request ends.
#[derive(Clone, Copy)]
pub struct Share(Option<Slot>);

/// The load of one direction of one proxy, as seen by one worker.
pub struct LoadBook<H> {
    host: H,
    direction: Direction,
    service: Counted,
    classes: Classes<OfClass>,
    /// Counters of requests without a class (inbound).
    classless: Made,
    chosen: String,
}

impl<H: Host> LoadBook<H> {
    /// Defines the stats. Returns None when the proxy refuses to define them.
    pub fn define(host: H, direction: Direction, now_ns: u64) -> Option<Self> {
        let name = |template| named(template, direction, "");
        let service =
            Counted::define(&host, &name(FILTER_STAT_IN_FLIGHT), &name(FILTER_STAT_ARRIVALS), now_ns)?;
        // The inbound name is used in both directions, because an outbound listener counts no
        // classes.
        let classless = Made::define(&host, Direction::Inbound, FILTER_STAT_CLASS_NONE)?;
        Some(Self { host, direction, service, classless, classes: Classes::default(), chosen: name(CHOSEN) })
    }

    /// Counts a request in. Inbound, also returns the load that it meets, which is the load on the
    /// application.
    ///
    /// An outbound request is only counted.
    pub fn enter(&mut self, class: Option<&str>, now_ns: u64) -> (Share, Option<Loads>) {
        if self.direction == Direction::Outbound {
            self.service.count(&self.host);
            return (Share(None), None);
        }
        let slot = class.and_then(|class| self.slot(class, now_ns));
        let of_class = slot
            .and_then(|slot| self.classes.get(slot))
            .and_then(|class| class.load.enter(&self.host, now_ns));
        let service = self.service.enter(&self.host, now_ns);
        // All classes beyond the limit are counted together, so that count is not the load of any
        // single class.
        let class_load = of_class.filter(|_| matches!(slot, Some(Slot::Own(_))));
        (Share(slot), service.map(|service| Loads { service, class: class_load }))
    }

    /// Counts a request by its caller (inbound).
    pub fn count(&self, share: Share, entry: bool) {
        if self.direction == Direction::Outbound {
            return;
        }
        let of_class = share.0.and_then(|slot| self.classes.get(slot));
        let made = of_class.map_or(&self.classless, |class| &class.made);
        let counter = if entry { made.entries } else { made.calls };
        counter.add(&self.host, 1);
    }

    /// Returns the requests over all workers, of every class that any worker has met.
    pub fn totals(&mut self, now_ns: u64) -> impl Iterator<Item = Requests<'_>> {
        let (host, direction) = (&self.host, self.direction);
        let mut chosen = Chosen { host, key: &self.chosen, read: Vec::new() };
        self.classes.meet_all(&mut chosen, |name| OfClass::define(host, direction, name, now_ns));
        let of_classes = self.classes.iter().flat_map(|(name, class)| {
            class.made.totals(host, Some(name.unwrap_or(FILTER_STAT_CLASS_OVERFLOW)))
        });
        self.classless.totals(host, None).into_iter().chain(of_classes).flatten()
    }

    /// Returns the number of requests so far, over all workers.
    pub fn arrivals(&self) -> Option<u64> {
        self.service.arrivals.get(&self.host)
    }

    /// Counts a request out.
    pub fn leave(&self, share: Share) {
        self.service.in_flight.add(&self.host, -1);
        if let Some(counted) = share.0.and_then(|slot| self.classes.get(slot)) {
            counted.load.in_flight.add(&self.host, -1);
        }
    }

    /// Samples every arrivals counter, for the rates over the last second.
    pub fn sample(&mut self, now_ns: u64) {
        self.service.sample(&self.host, now_ns);
        self.classes.iter_mut().for_each(|class| class.load.sample(&self.host, now_ns));
    }

    fn slot(&mut self, class: &str, now_ns: u64) -> Option<Slot> {
        let (host, direction) = (&self.host, self.direction);
        let mut chosen = Chosen { host, key: &self.chosen, read: Vec::new() };
        self.classes.slot(class, &mut chosen, |name| OfClass::define(host, direction, name, now_ns))
    }
}
