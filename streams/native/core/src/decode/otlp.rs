//! Decodes OTLP ExportTraceServiceRequest payloads into validated spans and rejected ones.
//!
//! A payload that is not protobuf is an error. A span that cannot be true (zero ids, negative or
//! absurd times, no identity) is rejected with its reason, and its neighbours are kept. Fields that
//! nobody reads (events, links, foreign attributes) are skipped by their length.

use std::fmt;

use crate::counters::Counters;
use crate::decode::attributes::{MAX_ATTRIBUTES, Slots};
use crate::decode::caches::Caches;
use crate::decode::raw::RawSpan;
use crate::decode::reading::{Reading, Resource};
use crate::decode::rejects::{NO_CLASS, Rejects};
use crate::decode::wire::{BYTES, Broken, Reader, tag};
use crate::memory::names::Names;
use crate::span::{Kind, Span};

pub use crate::decode::rejects::Rejected;

/// The payload is not an ExportTraceServiceRequest. None of its spans is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadError(pub &'static str);

impl fmt::Display for PayloadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "not an ExportTraceServiceRequest: {}", self.0)
    }
}

impl std::error::Error for PayloadError {}

const RESOURCE_SPANS: u32 = tag(1, BYTES);
const RESOURCE: u32 = tag(1, BYTES);
const SCOPE_SPANS: u32 = tag(2, BYTES);
const SPANS: u32 = tag(2, BYTES);
const RESOURCE_ATTRIBUTES: u32 = tag(1, BYTES);

/// Decoder of payloads. Between payloads it only keeps caches.
#[derive(Debug, Default)]
pub struct Decoder {
    caches: Caches,
}

impl Decoder {
    /// Appends the spans of one message that arrived at `received_us` (Unix microseconds), in its
    /// order.
    ///
    /// `cluster` is the cluster whose topic the message came from. All its spans belong to that
    /// cluster, whatever they claim. Without it, spans belong to the cluster that they name.
    ///
    /// Some fields are filled in only if a later stage may need them: method and template of a
    /// server or client span without a class of its own, and the destination of client spans. A
    /// server span that cannot have a class is rejected, but also kept as an internal span.
    ///
    /// # Errors
    /// Returns `PayloadError` and leaves `out` unchanged when the bytes are not an
    /// ExportTraceServiceRequest.
    pub fn decode(
        &mut self,
        payload: &[u8],
        received_us: i64,
        cluster: Option<&str>,
        names: &mut Names,
        out: &mut Vec<Span>,
        counters: &mut Counters,
    ) -> Result<Vec<Rejected>, PayloadError> {
        self.caches.renew(names);
        let before = out.len();
        let admitted = cluster.map(|name| names.intern(name));
        let reading = Reading { received_us, admitted, names, caches: &mut self.caches, counters };
        let mut message = Message { reading, out, rejects: Rejects::default() };
        match message.request(payload) {
            Ok(()) => Ok(message.rejects.finish()),
            Err(Broken(what)) => {
                message.out.truncate(before);
                Err(PayloadError(what))
            }
        }
    }
}

struct Message<'m, 'a> {
    reading: Reading<'m>,
    out: &'m mut Vec<Span>,
    rejects: Rejects<'a>,
}

impl<'a> Message<'_, 'a> {
    fn request(&mut self, payload: &'a [u8]) -> Result<(), Broken> {
        let (mut of_resource, mut of_span) = (Slots::new(), Slots::new());
        Reader::new(payload)
            .each(RESOURCE_SPANS, |spans| self.resource_spans(spans, &mut of_resource, &mut of_span))
    }

    /// Reads the message twice, because the resource may follow its spans. `of_resource` and
    /// `of_span` are reusable memory for attributes.
    fn resource_spans(
        &mut self,
        message: &'a [u8],
        of_resource: &mut Slots<'a>,
        of_span: &mut Slots<'a>,
    ) -> Result<(), Broken> {
        of_resource.clear();
        Reader::new(message).each(RESOURCE, |message| resource(message, of_resource))?;
        let resource = self.reading.resource(of_resource);
        Reader::new(message).each(SCOPE_SPANS, |scope| {
            Reader::new(scope).each(SPANS, |span| self.span(span, message, &resource, of_span))
        })
    }

    fn span(
        &mut self,
        message: &'a [u8],
        around: &'a [u8],
        resource: &Resource<'_, 'a>,
        of_span: &mut Slots<'a>,
    ) -> Result<(), Broken> {
        of_span.clear();
        let raw = RawSpan::read(message, of_span)?;
        if raw.attributes_beyond > 0 {
            self.reading.counters.add("attribute_beyond_bound", raw.attributes_beyond);
        }
        match self.reading.span(&raw, resource, of_span) {
            Err(reason) => self.rejects.add(reason, around, message),
            Ok(mut span) => {
                if span.kind == Kind::Server && span.class.is_none() && span.template.is_none() {
                    self.rejects.add(NO_CLASS, around, message);
                    // The span still connects its children to the trace.
                    span.kind = Kind::Internal;
                }
                self.out.push(span);
            }
        }
        Ok(())
    }
}

fn resource<'a>(message: &'a [u8], found: &mut Slots<'a>) -> Result<(), Broken> {
    let mut room = MAX_ATTRIBUTES;
    Reader::new(message).each(RESOURCE_ATTRIBUTES, |pair| {
        if room > 0 {
            room -= 1;
            found.add(pair)?;
        }
        Ok(())
    })
}
