use super::*;
use proptest::prelude::*;

fn concat(spans: &[Vec<u8>]) -> Vec<u8> {
    spans.concat()
}

/// Beyond its bound the queue lets the oldest go, and says so.
#[test]
fn oldest_goes_first() {
    let mut outbox = Outbox::new(2, 3);
    let dropped: u64 = (0..5).map(|n| outbox.push(vec![n])).sum();
    assert_eq!((dropped, outbox.waiting()), (2, 3));
    assert_eq!(outbox.take_new(concat).unwrap().payload, [2, 3]);
}

/// A failed batch is tried once more, then dropped and counted.
#[test]
fn one_retry() {
    let mut outbox = Outbox::new(8, 8);
    outbox.push(vec![1]);
    let batch = outbox.take_new(concat).unwrap();
    outbox.sent(7, batch);
    assert_eq!(outbox.answered(7, false), Outcome::Kept);
    let batch = outbox.take_kept().unwrap();
    outbox.sent(8, batch);
    assert_eq!(outbox.answered(8, false), Outcome::Dropped(1));
    assert_eq!(outbox.answered(8, true), Outcome::Unknown);
    assert!(outbox.take_kept().is_none());
}

#[derive(Clone, Debug)]
enum Step {
    Push,
    Flush { accepted_by_proxy: bool },
    Answer { nth: usize, ok: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Push),
        2 => any::<bool>().prop_map(|accepted_by_proxy| Step::Flush { accepted_by_proxy }),
        2 => (0usize..8, any::<bool>()).prop_map(|(nth, ok)| Step::Answer { nth, ok }),
    ]
}

proptest! {
    /// Whatever pushes, flushes and answers come in whatever order: no bound is exceeded, and every
    /// span is sent, dropped, or still held: none is lost or counted twice.
    #[test]
    fn every_span_is_accounted_for(
        steps in proptest::collection::vec(step(), 0..400), max_batch in 1usize..10, extra in 0usize..20,
    ) {
        let max_queue = max_batch + extra;
        let mut outbox = Outbox::new(max_batch, max_queue);
        let (mut pushed, mut sent, mut dropped, mut token) = (0u64, 0u64, 0u64, 0u32);
        for step in steps {
            let outcome = match step {
                Step::Push => {
                    pushed += 1;
                    dropped += outbox.push(vec![0]);
                    Outcome::Kept
                }
                Step::Flush { accepted_by_proxy } => {
                    match outbox.take_kept().or_else(|| outbox.take_new(concat)) {
                        Some(batch) if accepted_by_proxy => {
                            prop_assert!(batch.spans <= max_batch as u64);
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
                Outcome::Sent(n) => sent += n,
                Outcome::Dropped(n) => dropped += n,
                Outcome::Kept | Outcome::Unknown => {}
            }
            prop_assert!(outbox.waiting() <= max_queue);
            prop_assert!(outbox.under_way.len() + outbox.kept.len() <= MAX_OUTSTANDING);
        }
        prop_assert_eq!(pushed, sent + dropped + outbox.abandon());
    }
}
