package main

import (
	"math"
	"sync"
	"time"
)

// Rate is an exponentially weighted rate of events. With Poisson events of rate r and a window w,
// its mean is r and its variance r / (2 w). It is safe for concurrent use.
type Rate struct {
	window float64 // time constant, seconds

	mu    sync.Mutex
	rps   float64 // at the instant `since`
	since time.Time
}

// NewRate returns a rate of 0 with a time constant.
func NewRate(window time.Duration) *Rate {
	return &Rate{window: window.Seconds(), since: time.Now()}
}

// Add counts an event.
func (r *Rate) Add() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decay(time.Now())
	r.rps += 1 / r.window
}

// Rps returns the rate, in events per second.
func (r *Rate) Rps() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decay(time.Now())
	return r.rps
}

func (r *Rate) decay(now time.Time) {
	r.rps *= math.Exp(-now.Sub(r.since).Seconds() / r.window)
	r.since = now
}
