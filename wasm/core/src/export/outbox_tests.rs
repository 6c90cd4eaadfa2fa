use super::*;
use proptest::prelude::*;

const LARGE: usize = 1 << 20;

fn bounds(batch_spans: usize, queue_spans: usize) -> Bounds {
    Bounds { batch_spans, batch_bytes: LARGE, queue_spans, queue_bytes: LARGE }
}

/// When the limit in spans is exceeded, the queue drops its oldest batch and reports the number of
/// dropped spans.
#[test]
fn oldest_goes_first() {
    let mut outbox = Outbox::new(bounds(2, 4));
    let dropped: u64 = (0..7).map(|n| outbox.push(&[n])).sum();
    assert_eq!((dropped, outbox.waiting()), (4, 3));
    let batch = outbox.take_new(false).unwrap();
    assert_eq!((batch.bytes, batch.spans), (vec![0x12, 1, 4, 0x12, 1, 5], 2));
}

/// The limit in bytes has the same effect, and a batch never exceeds its own limit.
#[test]
fn bytes_are_bounded() {
    let mut outbox =
        Outbox::new(Bounds { batch_spans: 100, batch_bytes: 1_000, queue_spans: 1_000, queue_bytes: 2_500 });
    let dropped: u64 = (0..50).map(|_| outbox.push(&[7; 300])).sum();
    assert!(outbox.waiting_bytes() <= 2_500, "{}", outbox.waiting_bytes());
    assert_eq!(dropped + outbox.waiting(), 50);
    while let Some(batch) = outbox.take_new(true) {
        assert!(batch.bytes.len() <= 1_000 && batch.spans <= 3);
        outbox.sent(1, batch);
        outbox.answered(1, true);
    }
    assert_eq!((outbox.waiting(), outbox.waiting_bytes()), (0, 0));
}

/// A failed batch is tried once more, then dropped and counted.
#[test]
fn one_retry() {
    let mut outbox = Outbox::new(bounds(8, 8));
    outbox.push(&[1]);
    let batch = outbox.take_new(true).unwrap();
    outbox.sent(7, batch);
    assert_eq!(outbox.answered(7, false), Outcome::Kept);
    let batch = outbox.take_kept().unwrap();
    outbox.sent(8, batch);
    assert!(outbox.held() == 1 && outbox.expects_answers());
    assert_eq!(outbox.answered(8, false), Outcome::Dropped(1));
    assert_eq!(outbox.answered(8, true), Outcome::Unknown);
    assert!(outbox.take_kept().is_none() && outbox.held() == 0 && !outbox.expects_answers());
}

/// A batch that is not full waits for the flush.
#[test]
fn full_batches_go_first() {
    let mut outbox = Outbox::new(bounds(2, 8));
    outbox.push(&[1]);
    assert_eq!(outbox.take_new(false), None);
    outbox.push(&[2]);
    assert_eq!(outbox.take_new(false).unwrap().spans, 2);
}

#[derive(Clone, Debug)]
enum Step {
    Push { size: usize },
    Flush { accepted_by_proxy: bool, all: bool },
    Answer { nth: usize, ok: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1usize..30).prop_map(|size| Step::Push { size }),
        2 => any::<(bool, bool)>().prop_map(|(accepted_by_proxy, all)| Step::Flush { accepted_by_proxy, all }),
        2 => (0usize..8, any::<bool>()).prop_map(|(nth, ok)| Step::Answer { nth, ok }),
    ]
}

proptest! {
    /// For any order of pushes, flushes and answers, no limit is exceeded. Every span is sent,
    /// dropped or still held. No span is lost or counted twice.
    #[test]
    fn every_span_is_accounted_for(
        steps in proptest::collection::vec(step(), 0..400), batch_spans in 1usize..10, extra in 0usize..20,
        batch_bytes in 40usize..200, more_bytes in 0usize..400,
    ) {
        let queue_spans = batch_spans + extra;
        let bounds = Bounds { batch_spans, batch_bytes, queue_spans, queue_bytes: batch_bytes + more_bytes };
        let mut outbox = Outbox::new(bounds);
        let (mut pushed, mut sent, mut dropped, mut token) = (0u64, 0u64, 0u64, 0u32);
        for step in steps {
            let outcome = match step {
                Step::Push { size } => {
                    pushed += 1;
                    dropped += outbox.push(&vec![0; size]);
                    Outcome::Kept
                }
                Step::Flush { accepted_by_proxy, all } => {
                    match outbox.take_kept().or_else(|| outbox.take_new(all)) {
                        Some(batch) if accepted_by_proxy => {
                            prop_assert!(batch.spans <= batch_spans as u64 && batch.bytes.len() <= batch_bytes);
                            token += 1;
                            outbox.sent(token, batch);
                            Outcome::Kept
                        }
                        Some(batch) => outbox.refused(batch),
                        None => Outcome::Kept,
                    }
                }
                Step::Answer { nth, ok } => {
                    let token = outbox.under_way.get(nth).map_or(0, |(token, _)| *token);
                    outbox.answered(token, ok)
                }
            };
            match outcome {
                Outcome::Sent { spans, .. } => sent += spans,
                Outcome::Dropped(n) => dropped += n,
                Outcome::Kept | Outcome::Unknown => {}
            }
            prop_assert!(outbox.waiting() <= queue_spans as u64);
            prop_assert!(outbox.waiting_bytes() <= bounds.queue_bytes);
            prop_assert!(outbox.under_way.len() + outbox.kept.len() <= MAX_OUTSTANDING);
        }
        prop_assert_eq!(pushed, sent + dropped + outbox.held());
        prop_assert_eq!(pushed, sent + dropped + outbox.abandon());
        prop_assert_eq!(outbox.held(), 0);
    }
}
