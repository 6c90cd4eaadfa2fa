package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const sound = `
call_timeout_ms: 1000
services:
  a:
    workers: 1
    queue: 4
    queue_timeout_ms: 100
    endpoints:
      - method: GET
        path: /x/{id}
        service_time: {distribution: constant, mean_ms: 1}
        response_bytes: 10
        calls: [[{service: b, method: GET, path: "/y/{id}"}]]
  b:
    workers: 1
    queue: 4
    queue_timeout_ms: 100
    endpoints:
      - {method: GET, path: "/y/{key}", service_time: {distribution: exponential, mean_ms: 1}, response_bytes: 0}
`

// TestShippedApplications checks that every application in the repository is valid.
func TestShippedApplications(t *testing.T) {
	files, err := filepath.Glob("../applications/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no applications found: %v", err)
	}
	for _, file := range files {
		if _, problems := LoadApplication(file); len(problems) > 0 {
			t.Errorf("%s", strings.Join(problems, "\n"))
		}
	}
}

// TestProblems checks that each mistake is reported with its key, its value and what is allowed
// instead.
func TestProblems(t *testing.T) {
	if _, problems := ParseApplication([]byte(sound)); len(problems) > 0 {
		t.Fatalf("the sound application has problems: %v", problems)
	}
	for _, c := range []struct{ old, new, want string }{
		{"service: b,", "service: c,", `services.a.endpoints[0].calls[0][0].service: unknown service "c"; allowed: a, b`},
		{`path: "/y/{id}"`, `path: "/z/{id}"`, `service "b" has no endpoint for GET /z/{id}`},
		{`path: "/y/{id}"`, `path: "/y/{nr}"`, `variable {nr}; allowed: variables of the caller's path "/x/{id}"`},
		{"{service: b, method: GET,", "{service: b, method: FETCH,", `method: "FETCH"; allowed: DELETE, GET`},
		{"{service: b, method: GET, path: \"/y/{id}\"}", "{service: b, method: GET, path: \"/y/{id}\", probability: 2}",
			"calls[0][0].probability: 2; allowed: above 0, at most 1"},
		{"{service: b, method: GET, path: \"/y/{id}\"}",
			"{service: b, method: GET, path: \"/y/{id}\", probability: 0.5, count: 2}", "both probability and count"},
		{"distribution: constant", "distribution: uniform", `"uniform"; allowed: constant, exponential, lognormal`},
		{"mean_ms: 1}", "mean_ms: 0}", "service_time.mean_ms: 0; allowed: a number above 0"},
		{"mean_ms: 1}", "mean_ms: 1, cv: 2}", "cv: 2; allowed: only with distribution lognormal"},
		{"workers: 1", "workers: 0", "services.a.workers: 0; allowed: a number of at least 1"},
		{"queue: 4", "queue: -1", "services.a.queue: -1"},
		{"queue: 4", "quee: 4", "field quee not found"},
		{"path: /x/{id}", "path: x", `services.a.endpoints[0].path: "x"; allowed: a path that starts with '/'`},
		{"path: /x/{id}", "path: /x/{id}.json", `segment "{id}.json"`},
		{"call_timeout_ms: 1000", "call_timeout_ms: .nan", "call_timeout_ms: NaN"},
		{sound, "", "the file is empty"},
		{sound, "services: [1", "yaml: line 1"},
	} {
		_, problems := ParseApplication([]byte(strings.Replace(sound, c.old, c.new, 1)))
		if got := strings.Join(problems, "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%q instead of %q:\n got %q\nwant %q", c.new, c.old, got, c.want)
		}
	}
}

// TestCycleIsNamed checks that a cycle of calls is refused, with an error that lists its endpoints.
func TestCycleIsNamed(t *testing.T) {
	cyclic := strings.Replace(sound, "response_bytes: 0}",
		`response_bytes: 0, calls: [[{service: a, method: GET, path: "/x/{key}"}]]}`, 1)
	_, problems := ParseApplication([]byte(cyclic))
	want := "a GET /x/{id} -> b GET /y/{key} -> a GET /x/{id}"
	if len(problems) != 1 || !strings.Contains(problems[0], want) {
		t.Errorf("got %v, want the cycle %q", problems, want)
	}
}

// TestConflictingEndpoints checks that two endpoints that match the same requests are refused,
// because the choice between them would be arbitrary.
func TestConflictingEndpoints(t *testing.T) {
	twice := strings.Replace(sound, "      - {method: GET, path: \"/y/{key}\"",
		"      - {method: GET, path: \"/y/{other}\", service_time: {distribution: constant, mean_ms: 1}, response_bytes: 0}\n"+
			"      - {method: GET, path: \"/y/{key}\"", 1)
	_, problems := ParseApplication([]byte(twice))
	if len(problems) != 1 || !strings.Contains(problems[0], "conflicts with another endpoint") {
		t.Errorf("got %v", problems)
	}
}

// TestConfigListsEveryProblem checks that identity and addresses have no default, and that all
// problems are listed at once.
func TestConfigListsEveryProblem(t *testing.T) {
	_, problems := ReadConfig(func(string) string { return "" })
	if len(problems) != 8 {
		t.Errorf("%d problems, want 8: %v", len(problems), problems)
	}
	environment := map[string]string{
		"SPILLWAY_CLUSTER": "one,two", "SPILLWAY_SERVICE": "a", "SPILLWAY_POD": "0", "LAB_APPLICATION": "x.yaml",
		"LAB_LISTEN": "127.0.0.1:99999", "SPILLWAY_OUTBOUND": "127.0.0.1", "SPILLWAY_COLLECTOR": "127.0.0.1:1",
		"SPILLWAY_HEALTH_LISTEN": ":1",
	}
	_, problems = ReadConfig(func(key string) string { return environment[key] })
	for i, key := range []string{"SPILLWAY_CLUSTER", "LAB_LISTEN", "SPILLWAY_OUTBOUND", "SPILLWAY_HEALTH_LISTEN"} {
		if i >= len(problems) || !strings.HasPrefix(problems[i], key+": ") {
			t.Fatalf("problem %d: got %v, want one of %s", i, problems, key)
		}
	}
}
