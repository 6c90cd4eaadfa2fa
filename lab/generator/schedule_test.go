package main

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// A line of the input is a schedule, or an error that names what is wrong and what is allowed.
func TestParseScheduleNamesMistakes(t *testing.T) {
	if _, err := ParseSchedule([]byte(`{"segments": [{"seconds": 1, "rps": 2, "to_rps": 3}]}`)); err != nil {
		t.Fatal(err)
	}
	for line, expected := range map[string]string{
		``:                               "allowed:",
		`{}`:                             "segments: empty",
		`{"segments": []} {}`:            "more than one value",
		`{"segment": []}`:                `unknown field "segment"`,
		`{"segments": [{"seconds": 0}]}`: "segments[0].seconds: 0; allowed: more than 0",
		`{"segments": [{"seconds": 1, "rps": -1}]}`: "segments[0]: -1 to 0 requests per second; allowed: 0 to 1000000",
	} {
		if _, err := ParseSchedule([]byte(line)); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%s: %v; expected %q", line, err, expected)
		}
	}
}

// The input's parser takes any bytes, and what it accepts can be scheduled.
func FuzzParseSchedule(f *testing.F) {
	f.Add([]byte(`{"segments": [{"seconds": 1, "rps": 2, "to_rps": 0}]}`))
	f.Add([]byte(`{"segments": [{"seconds": 1e300, "rps": 1e-300}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		schedule, err := ParseSchedule(line)
		if err != nil {
			return
		}
		if at, some := schedule.After(0, 1); some && at < 0 {
			t.Fatalf("%s: a request at %v", line, at)
		}
	})
}

// Requests are planned where the area under the rates has grown by one.
func TestAfterIsTheInverseOfTheArea(t *testing.T) {
	ramp := Schedule{Segments: []Segment{{Seconds: 10, RPS: 0, ToRPS: 10}, {Seconds: 5, RPS: 4, ToRPS: 4}}}
	for _, check := range []struct {
		from     time.Duration
		requests float64
		expected float64 // seconds
	}{
		{0, 50, 10},  // all of the ramp
		{0, 12.5, 5}, // a quarter of it, in half of the time
		{5 * time.Second, 37.5, 10},
		{0, 54, 11},
		{0, 70, 15},
		{0, 78, 17}, // the last rate goes on
		{20 * time.Second, 4, 21},
	} {
		at, some := ramp.After(check.from, check.requests)
		if !some || math.Abs(at.Seconds()-check.expected) > 1e-6 {
			t.Errorf("%v after %v: %v; expected %v s", check.requests, check.from, at, check.expected)
		}
	}
	down := Schedule{Segments: []Segment{{Seconds: 2, RPS: 2, ToRPS: 0}}}
	if at, some := down.After(0, 2.1); some {
		t.Errorf("a request at %v after the load has ended", at)
	}
	if _, some := (Schedule{}).After(0, 1); some {
		t.Error("a request without a schedule")
	}
}

// Whatever the rates are, planned times never go back, and the area between two of them is what was
// asked for.
func TestAfterOfRandomSchedules(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		var schedule Schedule
		for range 1 + random.IntN(4) {
			schedule.Segments = append(schedule.Segments, Segment{
				Seconds: 0.1 + random.Float64()*10,
				RPS:     float64(random.IntN(3)) * random.Float64() * 50,
				ToRPS:   float64(random.IntN(3)) * random.Float64() * 50,
			})
		}
		from := time.Duration(random.Int64N(int64(5 * time.Second)))
		requests := random.ExpFloat64()
		at, some := schedule.After(from, requests)
		if !some {
			continue
		}
		if found := area(schedule, from.Seconds(), at.Seconds()); math.Abs(found-requests) > 1e-5*(1+requests) {
			t.Fatalf("%+v: %v requests between %v and %v; expected %v", schedule, found, from, at, requests)
		}
	}
}

// area returns the integral of a schedule's rates between two times, in seconds.
func area(s Schedule, from, to float64) float64 {
	total, start := 0.0, 0.0
	for _, x := range s.Segments {
		a, b := max(from-start, 0), min(to-start, x.Seconds)
		if a < b {
			slope := (x.ToRPS - x.RPS) / x.Seconds
			total += x.RPS*(b-a) + slope*(b*b-a*a)/2
		}
		start += x.Seconds
	}
	if to > start {
		total += s.Segments[len(s.Segments)-1].ToRPS * (to - max(start, from))
	}
	return total
}
