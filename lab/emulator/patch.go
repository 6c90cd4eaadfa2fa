package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

const (
	maxWorkers = 100_000
	maxDelayMs = 600_000
)

// patched returns the state with the changes of a JSON object, and a problem for each key that is
// unknown, given twice, or has a value that is not allowed.
func patched(state State, body []byte) (State, []string) {
	var r report
	members, err := objectMembers(body)
	if err != nil {
		r.add("body: %v; allowed: one JSON object", err)
	}
	seen := map[string]bool{}
	for _, member := range members {
		if seen[member.key] {
			r.add("%s: given twice; allowed: once", member.key)
		}
		seen[member.key] = true
		state.set(&r, member.key, member.value)
	}
	return state, r.problems
}

func (s *State) set(r *report, key string, value json.RawMessage) {
	switch key {
	case "speed":
		setNumber(r, key, value, &s.Speed, "a number above 0", func(v float64) bool { return v > 0 })
	case "workers":
		var workers float64
		words := fmt.Sprintf("a whole number from 1 to %d", maxWorkers)
		if setNumber(r, key, value, &workers, words, func(v float64) bool {
			return v >= 1 && v <= maxWorkers && v == math.Trunc(v)
		}) {
			s.Workers = int(workers)
		}
	case "error_rate":
		setNumber(r, key, value, &s.ErrorRate, "0 to 1", func(v float64) bool { return v >= 0 && v <= 1 })
	case "delay_ms":
		setNumber(r, key, value, &s.DelayMs, fmt.Sprintf("0 to %d", maxDelayMs),
			func(v float64) bool { return v >= 0 && v <= maxDelayMs })
	case "delay_share":
		setNumber(r, key, value, &s.DelayShare, "0 to 1", func(v float64) bool { return v >= 0 && v <= 1 })
	case "available":
		var available *bool
		if json.Unmarshal(value, &available) != nil || available == nil {
			r.add("%s: %s; allowed: true, false", key, short(value))
			return
		}
		s.Available = *available
	default:
		r.add("%s: unknown key; allowed: speed, workers, error_rate, available, delay_ms, delay_share", short([]byte(key)))
	}
}

func setNumber(r *report, key string, value json.RawMessage, to *float64, words string, sound func(float64) bool) bool {
	var got *float64
	if json.Unmarshal(value, &got) != nil || got == nil || !sound(*got) {
		r.add("%s: %s; allowed: %s", key, short(value), words)
		return false
	}
	*to = *got
	return true
}

// short returns a value for a message, cut when it is long.
func short(value []byte) string {
	const longest = 80
	if len(value) > longest {
		return strings.ToValidUTF8(string(value[:longest]), "") + "..."
	}
	return string(value)
}

type jsonMember struct {
	key   string
	value json.RawMessage
}

// objectMembers returns the members of a JSON object in their order. encoding/json would accept keys
// in another case, and keys that are given twice.
func objectMembers(body []byte) ([]jsonMember, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if first, err := decoder.Token(); err != nil {
		return nil, cleaned(err)
	} else if first != json.Delim('{') {
		return nil, fmt.Errorf("not an object: %s", short(bytes.TrimSpace(body)))
	}
	var members []jsonMember
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, cleaned(err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, cleaned(err)
		}
		members = append(members, jsonMember{key.(string), value}) // only strings are keys
	}
	if _, err := decoder.Token(); err != nil {
		return nil, cleaned(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	return members, nil
}

// cleaned names the end of the input in words.
func cleaned(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends early")
	}
	return err
}
