//! The log time of one partition, the ticks that a worker answers for, and the messages that are
//! done.
//!
//! The clock is the running maximum of the messages' timestamps. An idle partition is advanced from
//! outside. A worker that began in the middle of the log answers for ticks from its first message's
//! time plus the horizon on. Its predecessor answered for all earlier ticks, and committed exactly
//! that message for this reason.

use std::collections::VecDeque;

use crate::limits::Limits;

#[derive(Debug)]
pub(crate) struct Clock {
    tick_ms: i64,
    horizon_ms: i64,
    warm_up_ms: i64,
    log_start: bool,
    now_ms: Option<i64>,
    newest_ms: i64,
    last_offset: i64,
    /// First tick to answer for. Known from the first message on.
    answers_from: Option<i64>,
    /// For each tick's start, the last record high up to it: the last message whose timestamp is
    /// above all before it. Entries are (tick, offset), oldest first.
    highs: VecDeque<(i64, i64)>,
}

/// How a message relates to the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    InTime,
    /// The idle clock had already passed its timestamp. This breaks the promise that the clock only
    /// trails what can still arrive.
    Behind,
    /// Its offset was read before.
    Repeated,
}

impl Clock {
    pub fn new(limits: &Limits, first_offset: i64, log_start: bool) -> Self {
        Clock {
            tick_ms: limits.tick_ms,
            horizon_ms: limits.horizon_ms(),
            warm_up_ms: limits.horizon_ms(),
            log_start,
            now_ms: None,
            newest_ms: i64::MIN,
            last_offset: first_offset.saturating_sub(1),
            answers_from: None,
            highs: VecDeque::new(),
        }
    }

    /// Sets the predecessor's horizon, if it differs from ours. The predecessor stored everything
    /// up to there, and nothing beyond.
    pub fn follow(&mut self, horizon_ms: i64) {
        self.warm_up_ms = horizon_ms;
    }

    /// Records a message and advances the clock to its timestamp.
    pub fn message(&mut self, offset: i64, timestamp_ms: i64) -> Reading {
        if offset <= self.last_offset {
            return Reading::Repeated;
        }
        self.last_offset = offset;
        // A broker without a clock sends -1. The upper limit keeps arithmetic far from the ends of
        // i64.
        let at = timestamp_ms.clamp(0, i64::MAX / 4);
        // The message's log time, as every later reader of the log will compute it.
        let log_ms = at.max(self.newest_ms);
        let behind = self.now_ms.is_some_and(|now| log_ms < now);
        if at > self.newest_ms {
            self.newest_ms = at;
            self.note_high(offset, at);
        }
        if self.answers_from.is_none() {
            let from = if self.log_start { at } else { at.saturating_add(self.warm_up_ms) };
            let whole =
                if self.log_start { self.tick_of(from) } else { self.tick_of(from + self.tick_ms - 1) };
            self.answers_from = Some(whole);
        }
        self.advance(at);
        if behind { Reading::Behind } else { Reading::InTime }
    }

    fn note_high(&mut self, offset: i64, at: i64) {
        // The first tick whose start is not before the message.
        let tick = self.tick_of(at + self.tick_ms - 1);
        match self.highs.back_mut() {
            Some(last) if last.0 == tick => last.1 = offset,
            _ => self.highs.push_back((tick, offset)),
        }
    }

    /// Moves the clock forward, never back. Before the first message there is no time, because that
    /// message may be old.
    pub fn advance(&mut self, now_ms: i64) {
        if self.newest_ms == i64::MIN {
            return;
        }
        let now_ms = now_ms.clamp(0, i64::MAX / 4);
        self.now_ms = Some(self.now_ms.map_or(now_ms, |now| now.max(now_ms)));
    }

    pub fn now_ms(&self) -> Option<i64> {
        self.now_ms
    }

    /// The tick that is being filled.
    pub fn tick(&self) -> Option<i64> {
        self.now_ms.map(|now| self.tick_of(now))
    }

    pub fn answers_from(&self) -> Option<i64> {
        self.answers_from
    }

    /// Returns the offset to commit once everything up to `tick` is stored. Messages before it are
    /// done. None when nothing is done yet.
    pub fn done(&mut self, tick: i64) -> Option<i64> {
        let before = ((tick + 1) * self.tick_ms - self.horizon_ms).div_euclid(self.tick_ms);
        while self.highs.get(1).is_some_and(|(high, _)| *high <= before) {
            self.highs.pop_front();
        }
        self.highs.front().filter(|(high, _)| *high <= before).map(|(_, offset)| *offset)
    }

    fn tick_of(&self, at_ms: i64) -> i64 {
        at_ms.div_euclid(self.tick_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(log_start: bool) -> Clock {
        Clock::new(&Limits::default(), 7, log_start)
    }

    #[test]
    fn a_worker_in_the_middle_of_the_log_answers_after_the_horizon_and_one_at_its_start_at_once() {
        let (mut start, mut middle) = (clock(true), clock(false));
        start.message(7, 1_000_250);
        middle.message(7, 1_000_250);
        assert_eq!(start.answers_from(), Some(2_000));
        assert_eq!(middle.answers_from(), Some(2_201)); // 1 100 250 ms falls into tick 2 200
    }

    #[test]
    fn a_longer_horizon_than_the_predecessors_leaves_no_gap() {
        let mut clock = clock(false);
        clock.follow(5_000);
        clock.message(7, 1_000_000);
        assert_eq!(clock.answers_from(), Some(2_010));
    }

    #[test]
    fn what_is_done_is_the_newest_record_high_a_horizon_ago_and_it_stays_uncommitted_itself() {
        let mut clock = clock(true);
        for (offset, at) in [(7, 0), (8, 500), (9, 500), (10, 400), (11, 900), (12, 1_000), (13, 1_001)] {
            clock.message(offset, at);
        }
        assert_eq!(clock.done(198), None); // its horizon begins before the log does
        assert_eq!(clock.done(199), Some(7));
        assert_eq!(clock.done(200), Some(8)); // the first of two with equal timestamps
        assert_eq!(clock.done(201), Some(12)); // exactly at the tick's start
        assert_eq!(clock.done(202), Some(13));
    }

    #[test]
    fn the_clock_never_goes_back_and_a_message_that_it_had_passed_is_told() {
        let mut clock = clock(true);
        assert_eq!(clock.message(7, 5_000), Reading::InTime);
        assert_eq!(clock.message(8, 4_000), Reading::InTime);
        clock.advance(9_000);
        clock.advance(8_000);
        assert_eq!(clock.now_ms(), Some(9_000));
        assert_eq!(clock.message(8, 9_500), Reading::Repeated);
        assert_eq!(clock.message(9, 6_000), Reading::Behind);
        assert_eq!(clock.now_ms(), Some(9_000));
    }
}
