package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

const mostRPS = 1_000_000

// Segment is a linear piece of the load, in requests per second.
type Segment struct {
	Seconds float64 `json:"seconds"`
	RPS     float64 `json:"rps"`
	ToRPS   float64 `json:"to_rps"`
}

// Schedule is the load from one instant on. After its last segment, the last rate continues.
type Schedule struct {
	Segments []Segment `json:"segments"`
}

// ParseSchedule reads one line of standard input.
func ParseSchedule(line []byte) (Schedule, error) {
	var schedule Schedule
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&schedule); err != nil {
		return Schedule{}, fmt.Errorf(`%w; allowed: {"segments": [{"seconds": 1, "rps": 1, "to_rps": 1}]}`, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Schedule{}, errors.New("more than one value; allowed: one object per line")
	}
	if len(schedule.Segments) == 0 {
		return Schedule{}, errors.New("segments: empty; allowed: at least one")
	}
	for i, segment := range schedule.Segments {
		if segment.Seconds <= 0 {
			return Schedule{}, fmt.Errorf("segments[%d].seconds: %v; allowed: more than 0", i, segment.Seconds)
		}
		if least, most := min(segment.RPS, segment.ToRPS), max(segment.RPS, segment.ToRPS); least < 0 || most > mostRPS {
			return Schedule{}, fmt.Errorf("segments[%d]: %v to %v requests per second; allowed: 0 to %d",
				i, segment.RPS, segment.ToRPS, mostRPS)
		}
	}
	return schedule, nil
}

// After returns the time, counted from the schedule's start, until which `requests` more than at
// `from` are expected. The second value is false when the load ends before that.
//
// With `requests` drawn from the exponential distribution of mean 1, the times are those of a
// Poisson process whose rate changes over time (time-rescaling).
func (s Schedule) After(from time.Duration, requests float64) (time.Duration, bool) {
	at, start := from.Seconds(), 0.0
	for _, segment := range s.Segments {
		end := start + segment.Seconds
		if at < end {
			offset, rest := segment.after(max(at-start, 0), requests)
			if rest <= 0 {
				return seconds(start + offset), true
			}
			at, requests = end, rest
		}
		start = end
	}
	if len(s.Segments) == 0 || s.Segments[len(s.Segments)-1].ToRPS <= 0 {
		return 0, false
	}
	return seconds(at + requests/s.Segments[len(s.Segments)-1].ToRPS), true
}

// after returns when `requests` more than at `offset` are expected. If that is after the segment,
// it returns the segment's end and the requests that are still missing.
func (s Segment) after(offset, requests float64) (at, rest float64) {
	slope := (s.ToRPS - s.RPS) / s.Seconds
	rate, left := s.RPS+slope*offset, s.Seconds-offset
	if within := (rate + slope*left/2) * left; within < requests || within <= 0 {
		return s.Seconds, requests - max(within, 0)
	}
	// The root of rate·x + slope·x²/2 = requests, in the form that is also exact for a small slope.
	root := math.Sqrt(max(rate*rate+2*slope*requests, 0))
	return min(offset+2*requests/(rate+root), s.Seconds), 0
}

func seconds(value float64) time.Duration {
	return time.Duration(min(value*float64(time.Second), math.MaxInt64/2))
}
