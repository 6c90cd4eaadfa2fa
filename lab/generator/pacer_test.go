package main

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func constant(rps float64) Schedule {
	return Schedule{Segments: []Segment{{Seconds: 1, RPS: rps, ToRPS: rps}}}
}

// count paces requests until `seconds` have passed and returns when each was sent.
func count(arrivals *Arrivals, seconds float64) []float64 {
	began, sent := time.Now(), []float64{}
	time.AfterFunc(time.Duration(seconds*float64(time.Second)), arrivals.Stop)
	for {
		if _, stop := arrivals.Pace(0, 0); stop {
			return sent
		}
		sent = append(sent, time.Since(began).Seconds())
	}
}

// Arrivals of a constant rate are a Poisson process: gaps have the mean and the spread of the
// exponential distribution. The seed is fixed, so that the test cannot fail by chance.
func TestArrivalsAreAPoissonProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrivals := NewArrivals(1)
		arrivals.Replace(constant(50))
		sent := count(arrivals, 1000)
		n := float64(len(sent))
		if math.Abs(n-50_000) > 4*math.Sqrt(50_000) {
			t.Errorf("%v requests in 1000 s; expected 50 per second", n)
		}
		sum, squares := 0.0, 0.0
		for i := 1; i < len(sent); i++ {
			gap := sent[i] - sent[i-1]
			sum, squares = sum+gap, squares+gap*gap
		}
		mean := sum / (n - 1)
		if cv := math.Sqrt(squares/(n-1)/(mean*mean) - 1); math.Abs(cv-1) > 0.03 {
			t.Errorf("coefficient of variation of the gaps %v; expected 1", cv)
		}
	})
}

// A schedule that replaces another takes effect while the next request is awaited.
func TestAScheduleIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrivals := NewArrivals(1)
		arrivals.Replace(constant(1e-6)) // a request in eleven days
		time.AfterFunc(10*time.Second, func() { arrivals.Replace(constant(100)) })
		sent := count(arrivals, 20)
		if len(sent) < 800 || sent[0] < 10 || sent[0] > 11 {
			t.Errorf("%d requests, the first at %v", len(sent), sent[:min(1, len(sent))])
		}
	})
}

// Without a schedule nothing is sent, and the end is noticed.
func TestNoScheduleSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if sent := count(NewArrivals(1), 5); len(sent) > 0 {
			t.Errorf("sent at %v", sent)
		}
	})
}

// The same seed gives the same times.
func TestASeedGivesTheSameTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var found [2][]float64
		for i := range found {
			arrivals := NewArrivals(7)
			arrivals.Replace(constant(10))
			found[i] = count(arrivals, 10)
		}
		for i := range min(len(found[0]), len(found[1])) {
			if math.Abs(found[0][i]-found[1][i]) > 1e-6 {
				t.Fatalf("request %d at %v and at %v", i, found[0][i], found[1][i])
			}
		}
	})
}
