//! Turns a Span message and its resource into a validated `Span`.

use crate::classes::class_id::is_service;
use crate::counters::Counters;
use crate::decode::attributes::{Attributes, Slots};
use crate::decode::caches::Caches;
use crate::decode::keys::*;
use crate::decode::outcome::outcome;
use crate::decode::peer::destination;
use crate::decode::raw::RawSpan;
use crate::decode::rejects::Reason;
use crate::decode::sampling::adjusted_count;
use crate::decode::semconv::{MAX_PATH, kind, request};
use crate::memory::names::{Names, Sym};
use crate::span::{Kind, Span};

const MAX_DURATION_US: i64 = 3_600_000_000;
/// 2000-01-01. An earlier time means that the clock was not set.
const EARLIEST_US: i64 = 946_684_800_000_000;
/// Largest distance by which a span may end after its message's timestamp.
const MAX_AHEAD_US: i64 = 60_000_000;
/// Longest name of a cluster or service, in bytes, as for a domain name. Longer names are rejected.
pub const MAX_NAME: usize = 253;
/// Counter of the spans that claim another cluster than the one that their message was admitted
/// for.
pub const ANOTHER_CLUSTER: &str = "another_cluster_claimed";
const MAX_COUNT: u64 = i64::MAX as u64;

/// A resource: its attributes, and the cluster and service of its spans.
#[derive(Debug)]
pub struct Resource<'s, 'a> {
    pub attributes: &'s Slots<'a>,
    cluster: Result<Sym, Reason>,
    /// Whether its `spillway.cluster` differs from the cluster that the message was admitted for.
    claims_another: bool,
    service: Result<Sym, Reason>,
}

/// The context for decoding one message.
#[derive(Debug)]
pub struct Reading<'m> {
    pub received_us: i64,
    /// The cluster that the message was admitted for.
    pub admitted: Option<Sym>,
    pub names: &'m mut Names,
    pub caches: &'m mut Caches,
    pub counters: &'m mut Counters,
}

impl Reading<'_> {
    /// Reads the identity of a resource.
    pub fn resource<'s, 'a>(&mut self, found: &'s Slots<'a>) -> Resource<'s, 'a> {
        let attributes = Attributes { resource: found, span: found };
        let claims_another = found.has_first(CLUSTER) && self.is_another(attributes.text(CLUSTER));
        let cluster = self.admitted.map_or_else(|| self.cluster(attributes.text(CLUSTER)), Ok);
        Resource {
            attributes: found,
            cluster,
            claims_another,
            service: self.service(attributes.text(SERVICE)),
        }
    }

    /// Whether the name differs from the cluster that the message was admitted for.
    fn is_another(&self, name: &[u8]) -> bool {
        self.admitted.is_some_and(|admitted| self.names.text(admitted).as_bytes() != name)
    }

    fn cluster(&mut self, name: &[u8]) -> Result<Sym, Reason> {
        self.identity(name, Reason::NoCluster)
    }

    fn service(&mut self, name: &[u8]) -> Result<Sym, Reason> {
        let service = self.identity(name, Reason::NoService)?;
        if is_service(name) { Ok(service) } else { Err(Reason::BadService) }
    }

    fn identity(&mut self, name: &[u8], absent: Reason) -> Result<Sym, Reason> {
        if name.len() > MAX_NAME {
            return Err(Reason::LongIdentity);
        }
        self.names.intern_utf8(name).filter(|sym| !sym.is_none()).ok_or(absent)
    }

    /// Validates a span. `found` holds the span's own attributes.
    #[inline]
    pub fn span<'a>(
        &mut self,
        raw: &RawSpan<'a>,
        resource: &Resource<'_, 'a>,
        found: &Slots<'a>,
    ) -> Result<Span, Reason> {
        let (trace_id, span_id, parent_id) = ids(raw)?;
        let (started_us, duration_us) = self.times(raw)?;
        let attributes = Attributes { resource: resource.attributes, span: found };
        let (cluster, service) = self.identities(&attributes, resource)?;
        let kind = kind(&attributes, raw.kind);
        let (status, failed) = outcome(&attributes, raw.is_error);
        let mut span = Span {
            trace_id,
            span_id,
            parent_id,
            kind,
            failed,
            status,
            started_us,
            duration_us,
            name: self.name(raw.name),
            cluster,
            service,
            class: self.class(attributes.text(CLASS)),
            method: Sym::NONE,
            template: Sym::NONE,
            source_cluster: self.label(attributes.text(SOURCE_CLUSTER)),
            source_service: self.label(attributes.text(SOURCE_SERVICE)),
            destination_cluster: Sym::NONE,
            destination_service: Sym::NONE,
            in_flight: attributes.whole(IN_FLIGHT, u64::from(u32::MAX)).unwrap_or(0) as u32,
            class_in_flight: attributes.whole(CLASS_IN_FLIGHT, u64::from(u32::MAX)).unwrap_or(0) as u32,
            arrival_rate: attributes.rate(ARRIVAL_RATE),
            class_arrival_rate: attributes.rate(CLASS_ARRIVAL_RATE),
            network_us: attributes.whole(NETWORK_TIME, MAX_DURATION_US as u64),
            resends: attributes.whole(RESENDS, u64::from(u32::MAX)).unwrap_or(0) as u32,
            request_bytes: attributes.whole(REQUEST_SIZE, MAX_COUNT).unwrap_or(0),
            response_bytes: attributes.whole(RESPONSE_SIZE, MAX_COUNT).unwrap_or(0),
            adjusted_count: self.adjusted_count(raw.trace_state),
            ruleset_version: attributes.whole(RULESET_VERSION, MAX_COUNT).unwrap_or(0),
        };
        self.ask(&mut span, &attributes, raw.name);
        Ok(span)
    }

    /// Fills in the destination, and the parts of a class if the span has none of its own.
    #[inline]
    fn ask(&mut self, span: &mut Span, attributes: &Attributes<'_, '_>, name: &[u8]) {
        if span.kind == Kind::Client {
            let (service, cluster) = destination(attributes);
            span.destination_service = self.label(service);
            span.destination_cluster = self.label(cluster);
        }
        if span.class.is_none() && span.kind != Kind::Internal {
            let asked = request(attributes, name);
            if attributes.text(PATH).len() > MAX_PATH {
                self.counters.add("path_cut", 1);
            }
            span.method = self.method(asked.method);
            if !span.method.is_none() {
                span.template = self.caches.template(asked.path, self.names);
            }
        }
    }

    #[inline]
    fn class(&mut self, text: &[u8]) -> Sym {
        let class = self.caches.class(text, self.names);
        if class.is_none() && !text.is_empty() {
            self.counters.add("class_id_invalid", 1);
        }
        class
    }

    fn method(&mut self, method: &[u8]) -> Sym {
        if method.iter().all(u8::is_ascii_uppercase) {
            self.names.intern_utf8(method).unwrap_or_default()
        } else {
            self.names.intern_utf8(&method.to_ascii_uppercase()).unwrap_or_default()
        }
    }

    fn times(&self, raw: &RawSpan<'_>) -> Result<(i64, i64), Reason> {
        // A 64-bit number divided by 1000 fits into 63 bits.
        let (started, ended) = ((raw.start / 1000) as i64, (raw.end / 1000) as i64);
        if started < EARLIEST_US {
            Err(Reason::BeforeEpoch)
        } else if ended < started {
            Err(Reason::NegativeDuration)
        } else if ended > self.received_us.saturating_add(MAX_AHEAD_US) {
            Err(Reason::Future)
        } else if ended - started > MAX_DURATION_US {
            Err(Reason::TooLong)
        } else {
            Ok((started, ended - started))
        }
    }

    /// Returns cluster and service of a span, normally from its resource.
    ///
    /// A span may name its cluster if no collector set `spillway.cluster` in the resource. Istio's
    /// tracer may name its service. A claim of another cluster than the admitted one is only
    /// counted.
    #[inline]
    fn identities(
        &mut self,
        attributes: &Attributes<'_, '_>,
        resource: &Resource<'_, '_>,
    ) -> Result<(Sym, Sym), Reason> {
        let names_cluster = attributes.span.has(CLUSTER) && !resource.attributes.has_first(CLUSTER);
        if resource.claims_another
            || names_cluster
                && attributes.span.has_first(CLUSTER)
                && self.is_another(attributes.text(CLUSTER))
        {
            self.counters.add(ANOTHER_CLUSTER, 1);
        }
        let cluster = match names_cluster && self.admitted.is_none() {
            true => self.cluster(attributes.text(CLUSTER))?,
            false => resource.cluster?,
        };
        let service = match resource.service {
            Err(Reason::NoService) => self.service(attributes.text(CANONICAL_SERVICE))?,
            service => service?,
        };
        Ok((cluster, service))
    }

    /// Interns a name of a cluster or service. A name that is too long is dropped, because a cut
    /// one could be another's name.
    #[inline]
    fn label(&mut self, name: &[u8]) -> Sym {
        if name.len() > MAX_NAME {
            self.counters.add("name_too_long", 1);
            return Sym::NONE;
        }
        self.known(name)
    }

    /// Interns a span's name. A long name is cut, because it is only shown to people.
    #[inline]
    fn name(&mut self, name: &[u8]) -> Sym {
        if name.len() <= MAX_NAME {
            return self.known(name);
        }
        self.counters.add("span_name_cut", 1);
        let start = name.get(..MAX_NAME).unwrap_or(name);
        let valid = start.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        self.names.intern(valid)
    }

    #[inline]
    fn known(&mut self, text: &[u8]) -> Sym {
        self.names.intern_utf8(text).unwrap_or_else(|| {
            self.counters.add("text_not_utf8", 1);
            Sym::NONE
        })
    }

    #[inline]
    fn adjusted_count(&mut self, state: &[u8]) -> f64 {
        if state.is_empty() {
            return 1.0;
        }
        adjusted_count(state).unwrap_or_else(|| {
            self.counters.add("tracestate_threshold_broken", 1);
            1.0
        })
    }
}

#[inline]
fn ids(raw: &RawSpan<'_>) -> Result<(u128, u64, u64), Reason> {
    let trace_id = raw.trace_id.try_into().map_or(0, u128::from_be_bytes);
    let span_id = raw.span_id.try_into().map_or(0, u64::from_be_bytes);
    if trace_id == 0 {
        return Err(Reason::TraceId);
    }
    if span_id == 0 {
        return Err(Reason::SpanId);
    }
    let parent_id = match raw.parent_id {
        [] => 0,
        parent => u64::from_be_bytes(parent.try_into().map_err(|_| Reason::ParentId)?),
    };
    Ok((trace_id, span_id, parent_id))
}
