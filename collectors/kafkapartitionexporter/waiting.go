package kafkapartitionexporter

import (
	"sync"
	"time"
)

// waiting tracks which attempts are in flight, and since when.
type waiting struct {
	mu    sync.Mutex
	next  int
	since map[int]time.Time
	ended int // attempts that have ended, with any outcome
}

// begin records an attempt; `end` removes it.
func (w *waiting) begin() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since == nil {
		w.since = make(map[int]time.Time)
	}
	attempt := w.next
	w.next++
	w.since[attempt] = time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.since, attempt)
		w.ended++
	}
}

// oldest returns the age of the oldest attempt in flight. It is 0 without attempts in flight.
func (w *waiting) oldest() (age time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, began := range w.since {
		age = max(age, time.Since(began))
	}
	return age
}

// stalled blocks until no attempt has ended for `silence` and then returns true. It returns false
// when `over` is closed first.
func (w *waiting) stalled(silence time.Duration, over <-chan struct{}) bool {
	ended := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.ended
	}
	tick := time.NewTicker(silence)
	defer tick.Stop()
	for before := ended(); ; {
		select {
		case <-over:
			return false
		case <-tick.C:
		}
		now := ended()
		if now == before {
			return true
		}
		before = now
	}
}
