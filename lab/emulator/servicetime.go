package main

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	constant    = "constant"
	exponential = "exponential"
	lognormal   = "lognormal"
)

var distributions = []string{constant, exponential, lognormal}

// Chance is the only source of randomness of a process. It is safe for concurrent use.
type Chance struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// NewChance returns a source with the seed.
func NewChance(seed uint64) *Chance {
	return &Chance{rng: rand.New(rand.NewPCG(seed, seed))}
}

// Happens returns true with the given probability.
func (c *Chance) Happens(probability float64) bool {
	if probability <= 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64() < probability
}

// Draw returns a random service time.
func (c *Chance) Draw(s ServiceTime) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	factor := 1.0
	switch s.Distribution {
	case exponential:
		factor = c.rng.ExpFloat64()
	case lognormal:
		// The factor has mean 1 and the given coefficient of variation: sigma^2 = ln(1+cv^2),
		// mu = -sigma^2/2.
		variance := math.Log1p(s.CV * s.CV)
		factor = math.Exp(c.rng.NormFloat64()*math.Sqrt(variance) - variance/2)
	}
	return milliseconds(factor * s.MeanMs)
}

// milliseconds returns a duration, at most some decades, so that sums of durations never overflow.
func milliseconds(ms float64) time.Duration {
	const longest = time.Duration(math.MaxInt64 / 8)
	if nanoseconds := ms * float64(time.Millisecond); nanoseconds < float64(longest) {
		return time.Duration(nanoseconds)
	}
	return longest
}
