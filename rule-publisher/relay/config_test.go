package main

import (
	"strings"
	"testing"
)

// Every missing or wrong variable is named at once, none has a default, and the password is not shown.
func TestConfigListsEveryProblem(t *testing.T) {
	values := map[string]string{"SPILLWAY_NATS_URL": "http://me:secret@x", "SPILLWAY_XDS_LISTEN": "1234",
		"SPILLWAY_HEALTH_LISTEN": "127.0.0.1:99999", "SPILLWAY_CLUSTER": "a.b"}
	_, err := readConfig(func(key string) string { return values[key] })
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`SPILLWAY_CLUSTER: "a.b"`, "SPILLWAY_NATS_URL: not a NATS URL", "SPILLWAY_XDS_LISTEN: ",
		`SPILLWAY_HEALTH_LISTEN: port "99999"`, "SPILLWAY_STATE_DIR: not set", "SPILLWAY_TOPOLOGY: not set", "SPILLWAY_ENDPOINTS: not set"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is shown: %v", err)
	}
	if _, err := readConfig(func(string) string { return "" }); strings.Count(err.Error(), "not set") != 7 {
		t.Errorf("of nothing: %v", err)
	}
}
