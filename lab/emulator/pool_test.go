package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// work does what a request does with the pool, and returns its whole time in the system.
func work(p *Pool, service time.Duration) (time.Duration, error) {
	arrived := time.Now()
	start, err := p.Acquire(context.Background())
	if err != nil {
		return time.Since(arrived), err
	}
	end := start.Add(service)
	Hold(end)
	p.Release(end)
	return time.Since(arrived), nil
}

// occupancy returns how many requests are being served and how many wait.
func (p *Pool) occupancy() (busy, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy, p.waiting.Len()
}

// TestQueueBound checks that at most `workers` requests are served and `queue` requests wait. The
// next one is refused at once.
func TestQueueBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(2, 3, time.Minute)
		var mu sync.Mutex
		refused, served := 0, 0
		var group sync.WaitGroup
		for range 9 {
			group.Go(func() {
				took, err := work(pool, time.Second)
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, errQueueFull) {
					refused++
					if took != 0 {
						t.Errorf("refused after %v, want at once", took)
					}
				} else if err == nil {
					served++
				}
			})
		}
		group.Wait()
		if served != 5 || refused != 4 {
			t.Errorf("served %d, refused %d; want 5 and 4", served, refused)
		}
	})
}

// TestFirstInFirstOut checks that waiting requests are served in the order of their arrival.
func TestFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(1, 100, time.Minute)
		var mu sync.Mutex
		var order []int
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				if _, err := work(pool, time.Second); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			time.Sleep(time.Millisecond)
		}
		group.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("order %v", order)
			}
		}
	})
}

// TestGivingUp checks that a request leaves the queue after the timeout, or when its client goes
// away, and frees its place.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(1, 2, 100*time.Millisecond)
		go func() { _, _ = work(pool, time.Second) }()
		synctest.Wait()
		took, err := work(pool, time.Second)
		if !errors.Is(err, errQueueTimeout) || took != 100*time.Millisecond {
			t.Errorf("%v after %v; want a queue timeout after 100ms", err, took)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if _, err := pool.Acquire(ctx); !errors.Is(err, errCancelled) {
			t.Errorf("%v; want cancelled", err)
		}
		if _, waiting := pool.occupancy(); waiting != 0 {
			t.Errorf("%d still wait; want none", waiting)
		}
		time.Sleep(2 * time.Second)
		if busy, _ := pool.occupancy(); busy != 0 {
			t.Errorf("%d workers busy; want none", busy)
		}
	})
}

// TestLateTimersCostNoCapacity checks that a worker that its timer releases late does not cost
// capacity. The next request in the queue starts when the service was due to end, and the delay
// does not count as busy.
func TestLateTimersCostNoCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(1, 1, time.Minute)
		began := time.Now()
		first, _ := pool.Acquire(context.Background())
		second := make(chan time.Time)
		go func() { start, _ := pool.Acquire(context.Background()); second <- start }()
		time.Sleep(13 * time.Millisecond)
		pool.Release(first.Add(10 * time.Millisecond))
		start := <-second
		if got := start.Sub(began); got != 10*time.Millisecond {
			t.Errorf("the second starts after %v, want 10ms", got)
		}
		time.Sleep(10 * time.Millisecond) // 23 ms in all; the second was due at 20 ms
		pool.Release(start.Add(10 * time.Millisecond))
		if got := pool.TakeUtilisation(); math.Abs(got-20.0/23) > 1e-9 {
			t.Errorf("utilisation %v, want 20/23", got)
		}
	})
}

// TestResize checks that new workers take waiting requests at once, that removed workers finish their
// request, and that the utilisation counts the workers that were there.
func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(1, 100, time.Minute)
		var mu sync.Mutex
		var ends []time.Duration
		began := time.Now()
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				if _, err := work(pool, time.Second); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, time.Since(began))
			})
		}
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		pool.Resize(4) // 0.5 s: three more begin
		synctest.Wait()
		if busy, waiting := pool.occupancy(); busy != 4 || waiting != 2 {
			t.Errorf("%d busy, %d waiting after growing; want 4 and 2", busy, waiting)
		}
		pool.Resize(1) // the three that just began go on; at 1 s the first one's worker is gone
		time.Sleep(750 * time.Millisecond)
		if busy, waiting := pool.occupancy(); busy != 3 || waiting != 2 {
			t.Errorf("%d busy, %d waiting after shrinking; want 3 and 2", busy, waiting)
		}
		group.Wait()
		want := []time.Duration{1000, 1500, 1500, 1500, 2500, 3500}
		for i, end := range ends {
			if end != want[i]*time.Millisecond {
				t.Fatalf("ends %v; want %v ms", ends, want)
			}
		}
		pool.TakeUtilisation()
		pool.Resize(4)
		go func() { _, _ = work(pool, time.Second) }()
		time.Sleep(2 * time.Second)
		pool.Resize(1)
		time.Sleep(2 * time.Second)
		if got := pool.TakeUtilisation(); math.Abs(got-0.1) > 1e-9 { // 1 s of 4 x 2 s + 1 x 2 s
			t.Errorf("utilisation %v, want 0.1", got)
		}
	})
}

// TestResizeServesEveryRequest checks, for random sizes at random times, that every request is served,
// never by more workers than there have been, and that no worker stays idle while requests wait.
func TestResizeServesEveryRequest(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			pool := NewPool(1+rng.IntN(4), 1000, time.Hour)
			var group sync.WaitGroup
			for range 200 {
				service := time.Duration(1+rng.IntN(100)) * time.Millisecond
				group.Go(func() {
					if _, err := work(pool, service); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(time.Duration(rng.IntN(15)) * time.Millisecond)
				if rng.IntN(5) == 0 {
					pool.Resize(1 + rng.IntN(8))
				}
				synctest.Wait()
				pool.mu.Lock()
				if pool.busy > 8 || (pool.busy < pool.workers && pool.waiting.Len() > 0) {
					t.Errorf("seed %d: %d of %d workers busy, %d wait", seed, pool.busy, pool.workers, pool.waiting.Len())
				}
				pool.mu.Unlock()
			}
			group.Wait()
			if busy, waiting := pool.occupancy(); busy != 0 || waiting != 0 {
				t.Errorf("seed %d: %d busy and %d waiting at the end", seed, busy, waiting)
			}
		})
	}
}

// TestMatchesErlangC checks that Poisson arrivals and exponential holding times yield the mean time
// in the system (Erlang C) and the utilisation of an M/M/c queue. The seed is fixed and time is
// virtual, so the test is deterministic.
func TestMatchesErlangC(t *testing.T) {
	for _, c := range []struct {
		workers int
		load    float64
	}{{1, 0.5}, {1, 0.8}, {4, 0.7}, {4, 0.9}} {
		synctest.Test(t, func(t *testing.T) {
			const requests = 60_000
			service := ServiceTime{Distribution: exponential, MeanMs: 1000}
			chance, arrivals := NewChance(7), rand.New(rand.NewPCG(11, 11))
			pool := NewPool(c.workers, requests, 1000*time.Hour)
			rate := c.load * float64(c.workers) // per second; each worker serves one per second
			var mu sync.Mutex
			var total time.Duration
			var group sync.WaitGroup
			for range requests {
				time.Sleep(time.Duration(arrivals.ExpFloat64() / rate * float64(time.Second)))
				holding := chance.Draw(service)
				group.Go(func() {
					took, err := work(pool, holding)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					total += took
					mu.Unlock()
				})
			}
			busy := pool.TakeUtilisation()
			group.Wait()
			got := total.Seconds() / requests
			want := 1 + erlangC(c.workers, rate)/(float64(c.workers)-rate)
			if math.Abs(got/want-1) > 0.10 {
				t.Errorf("%d workers at %v: mean %.3f s, want %.3f s within 10 %%", c.workers, c.load, got, want)
			}
			if math.Abs(busy-c.load) > 0.02 {
				t.Errorf("%d workers: utilisation %.3f, want %.2f", c.workers, busy, c.load)
			}
		})
	}
}

// erlangC returns the probability that an arrival waits, for an offered load in Erlang.
func erlangC(workers int, offered float64) float64 {
	sum, term := 0.0, 1.0
	for k := range workers {
		sum += term
		term *= offered / float64(k+1)
	}
	last := term / (1 - offered/float64(workers))
	return last / (sum + last)
}

// TestServiceTimes checks that each distribution has the mean and the coefficient of variation that
// it declares.
func TestServiceTimes(t *testing.T) {
	for _, c := range []struct {
		time ServiceTime
		cv   float64
	}{
		{ServiceTime{Distribution: constant, MeanMs: 20}, 0},
		{ServiceTime{Distribution: exponential, MeanMs: 20}, 1},
		{ServiceTime{Distribution: lognormal, MeanMs: 20, CV: 0.5}, 0.5},
	} {
		chance, sum, squares := NewChance(3), 0.0, 0.0
		const draws = 200_000
		for range draws {
			ms := float64(chance.Draw(c.time)) / float64(time.Millisecond)
			sum += ms
			squares += ms * ms
		}
		mean := sum / draws
		cv := math.Sqrt(max(0, squares/draws-mean*mean)) / mean
		if math.Abs(mean/20-1) > 0.02 || math.Abs(cv-c.cv) > 0.02 {
			t.Errorf("%s: mean %.2f ms, cv %.3f; want 20 and %v", c.time.Distribution, mean, cv, c.cv)
		}
	}
}
