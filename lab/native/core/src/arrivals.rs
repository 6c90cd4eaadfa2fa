//! When requests arrive: a rate over time, piecewise linear, of a Poisson process or evenly spaced.

use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

/// A piece of the load: `rate` requests per second at its start and `to_rate` at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    pub seconds: f64,
    pub rate: f64,
    pub to_rate: f64,
}

impl Segment {
    fn requests(&self) -> f64 {
        self.seconds * (self.rate + self.to_rate) / 2.0
    }

    /// Seconds from the start after which `count` requests are expected.
    fn after(&self, count: f64) -> f64 {
        let slope = (self.to_rate - self.rate) / self.seconds;
        // Solves rate * t + slope * t^2 / 2 = count in a form that needs no division by the slope.
        let root = (self.rate * self.rate + 2.0 * slope * count).max(0.0).sqrt();
        let t = 2.0 * count / (self.rate + root).max(f64::MIN_POSITIVE);
        t.clamp(0.0, self.seconds)
    }
}

/// The arrivals of one cluster, in order.
#[derive(Clone, Debug)]
pub struct Arrivals {
    segments: Vec<Segment>,
    poisson: bool,
    at: usize,
    began: f64,
    /// Requests of this segment that are expected before the last arrival.
    done: f64,
    first: bool,
}

impl Arrivals {
    /// Of a load that begins at `began`.
    pub fn new(began: f64, segments: Vec<Segment>, poisson: bool) -> Self {
        Self { segments, poisson, at: 0, began, done: 0.0, first: true }
    }

    /// Returns the time of the next arrival. It is infinite when the load is over.
    pub fn next(&mut self, chance: &mut Pcg64) -> f64 {
        let mut gap: f64 = match (self.poisson, self.first) {
            (true, _) => Exp1.sample(chance),
            // The first of evenly spaced requests is half a gap after the start.
            (false, first) => {
                if first {
                    0.5
                } else {
                    1.0
                }
            }
        };
        self.first = false;
        while let Some(segment) = self.segments.get(self.at) {
            let left = segment.requests() - self.done;
            if gap <= left && left > 0.0 {
                self.done += gap;
                return self.began + segment.after(self.done);
            }
            gap -= left.max(0.0);
            self.began += segment.seconds;
            self.at += 1;
            self.done = 0.0;
        }
        f64::INFINITY
    }
}
