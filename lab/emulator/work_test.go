package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func cached(cache string) string {
	return strings.Replace(calm, "response_bytes: 3", "response_bytes: 3, cache: "+cache, 1)
}

// TestHitsAreFast checks that a cached key takes the time of a hit, and that the key that was not used
// for the longest time leaves a full cache.
func TestHitsAreFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, handler := podOf(t, "a", cached("{key: id, capacity: 2, hit: {distribution: constant, mean_ms: 1}}"))
		const hit, miss = time.Millisecond, 100 * time.Millisecond
		for i, c := range []struct {
			key  string
			want time.Duration
		}{
			{"1", miss}, {"1", hit}, {"2", miss}, {"1", hit},
			{"3", miss}, // 2 leaves: 1 was used after it
			{"1", hit}, {"2", miss}, {"3", miss}, {"a%2Fb", miss}, {"a%2Fb", hit},
		} {
			if _, took := ask(handler, "GET", "/x/"+c.key); took != c.want {
				t.Errorf("request %d, key %s: %v; want %v", i, c.key, took, c.want)
			}
		}
		if counts := pod.Snapshot(); counts["cache_hits"] != 4 || counts["cache_misses"] != 6 || counts["served"] != 10 {
			t.Errorf("counts %v; want 4 hits and 6 misses", counts)
		}
	})
}

// TestHitWithoutTime checks that a hit without a time holds its worker for no time, and that the
// pod's speed divides the time of a hit.
func TestHitWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			cache string
			want  time.Duration
		}{
			{"{key: id, capacity: 1}", 0},
			{"{key: id, capacity: 1, hit: {distribution: constant, mean_ms: 10}}", 40 * time.Millisecond},
		} {
			pod, handler := podOf(t, "a", cached(c.cache))
			set(t, pod, `{"speed": 0.25}`)
			ask(handler, "GET", "/x/1")
			if _, took := ask(handler, "GET", "/x/1"); took != c.want {
				t.Errorf("%s: a hit took %v; want %v", c.cache, took, c.want)
			}
		}
	})
}

// TestErrorsAreNotCached checks that a request that failed leaves no key in the cache.
func TestErrorsAreNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, handler := podOf(t, "a", cached("{key: id, capacity: 9}"))
		set(t, pod, `{"error_rate": 1}`)
		ask(handler, "GET", "/x/1")
		set(t, pod, `{"error_rate": 0}`)
		if _, took := ask(handler, "GET", "/x/1"); took != 100*time.Millisecond {
			t.Errorf("after an error: %v; want a miss of 100ms", took)
		}
	})
}

// TestHitsMakeNoCalls checks that only a miss makes the endpoint's calls, and that a miss whose call
// failed is a miss again.
func TestHitsMakeNoCalls(t *testing.T) {
	var calls, status atomic.Int64
	status.Store(500)
	outbound := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(int(status.Load()))
	}))
	defer outbound.Close()
	yaml := strings.Replace(sound, "response_bytes: 10", "response_bytes: 10\n        cache: {key: id, capacity: 5}", 1)
	_, server := testPod(t, "a", strings.TrimPrefix(outbound.URL, "http://"), yaml)
	for i, want := range []struct{ status, calls int64 }{{502, 1}, {200, 2}, {200, 2}} {
		response, _ := get(t, server.URL+"/x/1", nil)
		if int64(response.StatusCode) != want.status || calls.Load() != want.calls {
			t.Errorf("request %d: %d after %d calls; want %d after %d", i, response.StatusCode, calls.Load(), want.status, want.calls)
		}
		status.Store(200)
	}
}

// TestHitShare checks the share of hits of users who ask for any of n keys alike: a cache of c keys has
// c of them, so it is c / n (SLATE section 5.3.2 has 100 of 100 to 200).
func TestHitShare(t *testing.T) {
	for _, keys := range []int{100, 150, 200} {
		synctest.Test(t, func(t *testing.T) {
			pod, handler := podOf(t, "a", cached("{key: id, capacity: 100}"))
			rng := rand.New(rand.NewPCG(5, uint64(keys)))
			some := func(n int) {
				for range n {
					ask(handler, "GET", fmt.Sprintf("/x/%d", rng.IntN(keys)))
				}
			}
			some(2000) // fills the cache
			warm := pod.counts.Hits.Load()
			some(4000)
			want := math.Min(1, 100/float64(keys))
			if got := float64(pod.counts.Hits.Load()-warm) / 4000; math.Abs(got-want) > 0.035 {
				t.Errorf("%d keys: share of hits %.3f; want %.3f", keys, got, want)
			}
		})
	}
}

const contended = `
call_timeout_ms: 1000
services:
  a:
    workers: 50
    queue: 100
    queue_timeout_ms: 60000
    endpoints:
      - {method: POST, path: /checkout, service_time: {distribution: constant, mean_ms: 100}, response_bytes: 3,
         contention: [{method: POST, path: "/cart", doubles_at_rps: 40, window_ms: 4000}]}
      - {method: POST, path: /cart, service_time: {distribution: constant, mean_ms: 1}, response_bytes: 3}
`

// TestContentionSlowsTheOtherEndpoint checks that a service time grows with the rate of the other
// endpoint alone, and is as before when that rate has gone.
func TestContentionSlowsTheOtherEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, handler := podOf(t, "a", contended)
		took := func() float64 {
			_, took := ask(handler, "POST", "/checkout")
			return took.Seconds() * 1000
		}
		for range 5 { // its own rate does not matter
			if got := took(); got != 100 {
				t.Errorf("alone: %v ms; want 100", got)
			}
		}
		for range 60 * 20 { // 20 requests per second for 60 s: half of what doubles the time
			ask(handler, "POST", "/cart")
			time.Sleep(49 * time.Millisecond)
		}
		if got := took(); math.Abs(got-150) > 2 {
			t.Errorf("at 20 rps: %v ms; want 150", got)
		}
		time.Sleep(60 * time.Second)
		if got := took(); math.Abs(got-100) > 0.1 {
			t.Errorf("a minute later: %v ms; want 100", got)
		}
	})
}

// TestRateOfPoissonEvents checks the mean and the variance that the comment of Rate states.
func TestRateOfPoissonEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rps, window, events = 50.0, 2.0, 100_000
		rng, rate := rand.New(rand.NewPCG(3, 3)), NewRate(2*time.Second)
		var sum, squares, weight float64
		for i := range events {
			gap := rng.ExpFloat64() / rps
			time.Sleep(time.Duration(gap * float64(time.Second)))
			if i > 1000 && i%10 == 0 { // seen before the event, so that events do not see themselves
				got := rate.Rps()
				sum, squares, weight = sum+got, squares+got*got, weight+1
			}
			rate.Add()
		}
		mean := sum / weight
		variance := squares/weight - mean*mean
		if math.Abs(mean/rps-1) > 0.02 || math.Abs(variance/(rps/(2*window))-1) > 0.15 {
			t.Errorf("mean %.2f, variance %.2f; want %v and %v", mean, variance, rps, rps/(2*window))
		}
	})
}
