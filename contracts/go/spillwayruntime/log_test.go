package spillwayruntime

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestLogLinesHaveTheKeysOfEveryProgram checks the keys that contracts/README.md lists, and that
// attributes in a group keep their names.
func TestLogLinesHaveTheKeysOfEveryProgram(t *testing.T) {
	var out bytes.Buffer
	NewLog(&out, slog.LevelInfo).With("cluster", "east").Warn("draining", slog.Group("of", "msg", "kept"))
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["level"] != "warning" || line["message"] != "draining" || line["cluster"] != "east" {
		t.Errorf("line: %v", line)
	}
	if at, err := time.Parse(time.RFC3339Nano, line["at"].(string)); err != nil || time.Since(at).Abs() > time.Minute || !strings.HasSuffix(line["at"].(string), "Z") {
		t.Errorf("at: %v: %v", line["at"], err)
	}
	if group, _ := line["of"].(map[string]any); group["msg"] != "kept" || line["msg"] != nil || line["time"] != nil {
		t.Errorf("line: %v", line)
	}
}
