//! Counters of input that was clamped, dropped or odd, by reason.

/// Counts by reason. A list is sufficient, because reasons are few and counting is rare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(Vec<(&'static str, u64)>);

impl Counters {
    pub fn add(&mut self, reason: &'static str, count: u64) {
        if count == 0 {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum += count,
            None => self.0.push((reason, count)),
        }
    }

    pub fn get(&self, reason: &str) -> u64 {
        self.0.iter().find(|(known, _)| *known == reason).map_or(0, |(_, sum)| *sum)
    }

    /// Returns all counts and resets them.
    pub fn take(&mut self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.0)
    }
}
