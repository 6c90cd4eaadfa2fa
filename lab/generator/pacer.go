package main

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Arrivals paces requests: each is sent when its planned time has come, whatever became of earlier
// ones (open loop). A new schedule takes effect at once, also while the next request is awaited.
//
// It implements vegeta's Pacer, and does the waiting itself.
type Arrivals struct {
	random *rand.Rand

	mu       sync.Mutex
	schedule Schedule
	began    time.Time     // start of the schedule
	last     time.Duration // planned time of the last request, from began
	changed  chan struct{} // closed when the schedule is replaced
	stopped  bool
}

// NewArrivals returns arrivals without load until the first schedule.
func NewArrivals(seed uint64) *Arrivals {
	return &Arrivals{random: rand.New(rand.NewPCG(seed, seed)), changed: make(chan struct{})}
}

// Replace starts a schedule now.
func (a *Arrivals) Replace(schedule Schedule) {
	a.change(func() { a.schedule, a.began, a.last = schedule, time.Now(), 0 })
}

// Stop ends the load.
func (a *Arrivals) Stop() {
	a.change(func() { a.stopped = true })
}

func (a *Arrivals) change(apply func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	apply()
	close(a.changed)
	a.changed = make(chan struct{})
}

// Pace waits for the planned time of the next request. It returns true after Stop.
func (a *Arrivals) Pace(time.Duration, uint64) (time.Duration, bool) {
	for {
		next, changed, stopped := a.plan()
		if stopped {
			return 0, true
		}
		if a.await(next, changed) {
			return 0, false
		}
	}
}

// plan returns when the next request is due, or the zero time when none is; and a channel that is
// closed when the plan no longer holds.
func (a *Arrivals) plan() (next time.Time, changed chan struct{}, stopped bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// A replaced schedule discards a planned request. What is left to wait is exponential again.
	if at, some := a.schedule.After(a.last, a.random.ExpFloat64()); some {
		a.last, next = at, a.began.Add(at)
	}
	return next, a.changed, a.stopped
}

// await returns true at the time `next`, and false when the plan has changed before.
func (a *Arrivals) await(next time.Time, changed chan struct{}) bool {
	var due <-chan time.Time
	if !next.IsZero() {
		wait := time.Until(next)
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
		return true
	case <-changed:
		return false
	}
}

// Rate returns 0. vegeta uses it only for its own reports.
func (a *Arrivals) Rate(time.Duration) float64 { return 0 }
