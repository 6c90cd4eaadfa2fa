package spillwayruntime

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// TestHealthHasTheKeysOfEveryProgram checks the paths and keys that contracts/README.md lists. Only
// /readyz fails while the program has a problem.
func TestHealthHasTheKeysOfEveryProgram(t *testing.T) {
	problems := map[string]string{"ruleset": "none yet"}
	mux := http.NewServeMux()
	HandleHealth(mux, func() Report { return Report{Problems: problems} })
	ask := func(path string) (int, map[string]any) {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		var document map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil {
			t.Fatal(err)
		}
		return answer.Code, document
	}
	for path, want := range map[string]int{"/livez": 200, "/healthz": 200, "/readyz": 503} {
		code, document := ask(path)
		keys := slices.Sorted(maps.Keys(document))
		if code != want || !slices.Equal(keys, []string{"counters", "degraded", "gauges", "problems", "ready"}) || document["ready"] != false {
			t.Errorf("%s: %d, %v", path, code, document)
		}
	}
	clear(problems)
	if code, document := ask("/readyz"); code != 200 || document["ready"] != true {
		t.Errorf("ready: %d, %v", code, document)
	}
}
