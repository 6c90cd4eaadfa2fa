package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestPatchChangesOnlyTheKeysGiven checks that a patch changes what it names and keeps the rest.
func TestPatchChangesOnlyTheKeysGiven(t *testing.T) {
	first := InitialState(4)
	for _, c := range []struct {
		body string
		want State
	}{
		{`{}`, first},
		{` { "speed" : 0.5 } `, State{Speed: 0.5, Workers: 4, Available: true, DelayShare: 1}},
		{`{"workers": 1e1}`, State{Speed: 1, Workers: 10, Available: true, DelayShare: 1}},
		{`{"available": false, "delay_ms": 150}`, State{Speed: 1, Workers: 4, DelayMs: 150, DelayShare: 1}},
		{`{"error_rate": 1, "speed": 2}`, State{Speed: 2, Workers: 4, ErrorRate: 1, Available: true, DelayShare: 1}},
	} {
		got, problems := patched(first, []byte(c.body))
		if len(problems) > 0 || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.body, got, problems, c.want)
		}
	}
}

// TestPatchProblems checks that each mistake is named with its key, its value and what is allowed,
// and that all mistakes of a body are listed.
func TestPatchProblems(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"speed": 0}`, "speed: 0; allowed: a number above 0"},
		{`{"speed": 1e999}`, "speed: 1e999; allowed: a number above 0"},
		{`{"speed": "2"}`, `speed: "2"; allowed: a number above 0`},
		{`{"speed": null}`, "speed: null; allowed: a number above 0"},
		{`{"workers": 0}`, "workers: 0; allowed: a whole number from 1 to 100000"},
		{`{"workers": 1.5}`, "workers: 1.5; allowed: a whole number from 1 to 100000"},
		{`{"error_rate": 1.01}`, "error_rate: 1.01; allowed: 0 to 1"},
		{`{"delay_ms": -1}`, "delay_ms: -1; allowed: 0 to 600000"},
		{`{"delay_share": 1.5}`, "delay_share: 1.5; allowed: 0 to 1"},
		{`{"available": 1}`, "available: 1; allowed: true, false"},
		{`{"available": null}`, "available: null; allowed: true, false"},
		{`{"Speed": 1}`, "Speed: unknown key; allowed: speed, workers, error_rate, available, delay_ms, delay_share"},
		{`{"speed": 1, "speed": 2}`, "speed: given twice; allowed: once"},
		{`{"speed": 0, "workers": 0}`, "speed: 0; allowed: a number above 0\nworkers: 0; allowed: a whole"},
		{``, "body: it ends early; allowed: one JSON object"},
		{`{"speed": 1`, "body: it ends early; allowed: one JSON object"},
		{`[1]`, "body: not an object: [1]; allowed: one JSON object"},
		{`{} {}`, "body: something follows the object; allowed: one JSON object"},
		{`{"speed" 1}`, "body: expected colon after object key; allowed: one JSON object"},
	} {
		_, problems := patched(InitialState(1), []byte(c.body))
		if got := strings.Join(problems, "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.body, got, c.want)
		}
	}
}

// FuzzPatch checks that a body either has problems that say what is allowed, or gives a state in the
// allowed ranges which the same body does not change again.
func FuzzPatch(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"speed": 0.5, "workers": 3, "error_rate": 0.25, "available": false, "delay_ms": 10.5, "delay_share": 0.5}`,
		`{"workers": 1e400}`, `{"workers": "1"}`, `{"speed": 5e-324}`, `{"a": [{"b": null}]}`, `[`, `{"\ud800": 1}`, `null`,
		`{"delay_ms": -0}`, `{"speed": 1} x`, "{\"speed\": 1}\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, problems := patched(InitialState(7), body)
		if len(problems) > 0 {
			for _, problem := range problems {
				if !strings.Contains(problem, "; allowed: ") {
					t.Errorf("%q: %q does not say what is allowed", body, problem)
				}
			}
			return
		}
		if !json.Valid(body) {
			t.Errorf("%q is no JSON, and has no problem", body)
		}
		allowed := got.Speed > 0 && !math.IsInf(got.Speed, 0) && got.Workers >= 1 && got.Workers <= maxWorkers &&
			got.ErrorRate >= 0 && got.ErrorRate <= 1 && got.DelayMs >= 0 && got.DelayMs <= maxDelayMs &&
			got.DelayShare >= 0 && got.DelayShare <= 1
		if !allowed {
			t.Errorf("%q gives %+v", body, got)
		}
		if again, problems := patched(got, body); len(problems) > 0 || again != got {
			t.Errorf("%q twice: %+v, %v; want %+v", body, again, problems, got)
		}
		document, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if read, problems := patched(InitialState(1), document); len(problems) > 0 || read != got {
			t.Errorf("%s reads back as %+v, %v", document, read, problems)
		}
	})
}

// TestPatchIsAllOrNothing checks that one wrong key keeps every other key of the body from changing
// anything, and that a change is announced once.
func TestPatchIsAllOrNothing(t *testing.T) {
	var announced []State
	board := NewSwitchboard(InitialState(2), func(state State) { announced = append(announced, state) })
	if _, problems := board.Patch([]byte(`{"speed": 2, "workers": -1}`)); len(problems) != 1 {
		t.Errorf("problems %v; want one", problems)
	}
	if board.State() != InitialState(2) || len(announced) != 0 {
		t.Errorf("%+v, announced %v; want no change", board.State(), announced)
	}
	changed, _ := board.Patch([]byte(`{"speed": 2}`))
	if fmt.Sprint(announced) != fmt.Sprint([]State{changed}) || changed.Speed != 2 {
		t.Errorf("announced %v; want %v once", announced, changed)
	}
}
