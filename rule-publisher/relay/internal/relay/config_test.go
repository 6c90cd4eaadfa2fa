package relay

import (
	"strings"
	"testing"
	"time"
)

// TestConfigListsEveryProblem checks that the error names every missing and every wrong variable,
// and that none of them has a default. The password is not shown.
func TestConfigListsEveryProblem(t *testing.T) {
	values := map[string]string{"SPILLWAY_NATS_URL": "http://me:secret@x", "SPILLWAY_XDS_LISTEN": "1234",
		"SPILLWAY_HEALTH_LISTEN": "127.0.0.1:99999", "SPILLWAY_CLUSTER": "a.b", "SPILLWAY_RELAY": "a/b", "SPILLWAY_XDS_IDENTITY": "spiffe://x/{service}",
		"SPILLWAY_RELAY_LOG_LEVEL": "loud", "SPILLWAY_NATS_CERT": "c"}
	_, err := ReadConfig(func(key string) string { return values[key] })
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`SPILLWAY_CLUSTER: "a.b"`, `SPILLWAY_RELAY: "a/b"`, "SPILLWAY_NATS_URL: not a NATS URL", "SPILLWAY_XDS_LISTEN: ",
		`SPILLWAY_HEALTH_LISTEN: port "99999"`, "SPILLWAY_STATE_DIR: not set", "SPILLWAY_TOPOLOGY: not set", "SPILLWAY_ENDPOINTS: not set", "SPILLWAY_XDS_CERT: not set", "SPILLWAY_XDS_KEY: not set", "SPILLWAY_XDS_CLIENT_CA: not set", "SPILLWAY_RULESET_KEYS: not set",
		`SPILLWAY_XDS_IDENTITY: "spiffe://x/{service}" has {cluster} 0 times`, "SPILLWAY_RELAY_LOG_LEVEL: ",
		"SPILLWAY_NATS_CERT, SPILLWAY_NATS_KEY: one is set"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is shown: %v", err)
	}
	if _, err := ReadConfig(func(string) string { return "" }); strings.Count(err.Error(), "not set") != 13 {
		t.Errorf("of nothing: %v", err)
	}
}

// TestEverySettingIsDeclaredOnce checks that every row of the settings has what the table needs, and
// that a setting with a default is not required.
func TestEverySettingIsDeclaredOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, setting := range Settings() {
		if seen[setting.Name] || setting.Value == "" || setting.Meaning == "" || setting.Required && setting.Default != "" {
			t.Errorf("%+v", setting)
		}
		seen[setting.Name] = true
	}
}

// TestConfigHoldsForSixHoursUnlessToldOtherwise checks that expired weights are held for six hours
// unless the operator sets another time, which may be 0.
func TestConfigHoldsForSixHoursUnlessToldOtherwise(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 6 * time.Hour, "0": 0, "90": 90 * time.Second} {
		c, err := ReadConfig(func(key string) string { return map[string]string{"SPILLWAY_RELAY_RULESET_HOLD_S": value}[key] })
		if c.Hold != want || strings.Contains(err.Error(), "HOLD") {
			t.Errorf("%q: %s, want %s: %v", value, c.Hold, want, err)
		}
	}
	for _, value := range []string{"-1", "2592001", "6h"} {
		if _, err := ReadConfig(func(string) string { return value }); !strings.Contains(err.Error(), "SPILLWAY_RELAY_RULESET_HOLD_S: \""+value+"\"; must be 0..2592000 seconds") {
			t.Errorf("%q was taken: %v", value, err)
		}
	}
}

// TestConfigRefusesNATSInClear checks that no password goes to another host in clear, unless the
// network is declared isolated, or an authority makes the client require TLS.
func TestConfigRefusesNATSInClear(t *testing.T) {
	const clear = "SPILLWAY_NATS_URL: nats:// in clear text to another host"
	for _, test := range []struct {
		url, ca, plaintext string
		refused            bool
	}{
		{"nats://relay-north:secret@127.0.0.1:4222,nats://relay-north:secret@localhost:1, nats://[::1]:2", "", "", false},
		{"tls://relay-north:secret@far.test:4222", "", "", false},
		{"nats://relay-north:secret@far.test:4222", "", "", true},
		{"nats://relay-north:secret@127.0.0.1.far.test:4222", "", "", true},
		{"tls://relay-north:secret@a.test:1,nats://relay-north:secret@b.test:1", "", "", true},
		{"nats://relay-north:secret@far.test:4222", "ca.crt", "", false},
		{"nats://relay-north:secret@nats:4222", "", "allow", false},
		{"nats://relay-north:secret@nats:4222", "", "yes", true},
	} {
		values := map[string]string{"SPILLWAY_CLUSTER": "north", "SPILLWAY_RELAY": "relay-0", "SPILLWAY_NATS_URL": test.url, "SPILLWAY_NATS_CA": test.ca, "SPILLWAY_PLAINTEXT": test.plaintext}
		_, err := ReadConfig(func(key string) string { return values[key] })
		if strings.Contains(err.Error(), clear) != test.refused || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%+v: %v", test, err)
		}
		if got := strings.Contains(err.Error(), "SPILLWAY_PLAINTEXT: "); got != (test.plaintext == "yes") {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// TestConfigRefusesForeignNATSUsers checks that the credentials of any user but the cluster's own
// relay are refused, in whichever URL of a list they are. The error does not show them.
func TestConfigRefusesForeignNATSUsers(t *testing.T) {
	for url, want := range map[string]string{
		"nats://relay-north:secret@a:4222,tls://relay-north:secret@b": "",
		"nats://a:4222":                  "",
		"nats://publisher:secret@a:4222": "another user",
		"nats://relay-north:x@a:4222, nats://relay-south:secret@a:4222": "another user",
		"nats://secret@a:4222":                "another user",
		"nats://relay-north:secret@a:x":       "not a NATS URL",
		"nats://relay-north:secret@a,http://": "not a NATS URL",
	} {
		err := checkNatsURL(url, "relay-north")
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// TestFormerNamesAreAcceptedForOneVersion checks that a variable that was renamed is read under its
// former name, with a warning, and that the present name comes first.
func TestFormerNamesAreAcceptedForOneVersion(t *testing.T) {
	read := func(environment map[string]string) Config {
		conf, _ := ReadConfig(func(key string) string { return environment[key] })
		return conf
	}
	former := read(map[string]string{"SPILLWAY_RULESET_HOLD_SECONDS": "7"})
	if former.Hold != 7*time.Second || len(former.Warnings) != 1 || !strings.Contains(former.Warnings[0], "is now SPILLWAY_RELAY_RULESET_HOLD_S") {
		t.Errorf("former name: %v, %q", former.Hold, former.Warnings)
	}
	both := read(map[string]string{"SPILLWAY_RULESET_HOLD_SECONDS": "7", "SPILLWAY_RELAY_RULESET_HOLD_S": "8"})
	if both.Hold != 8*time.Second || len(both.Warnings) != 1 {
		t.Errorf("both names: %v, %q", both.Hold, both.Warnings)
	}
	if present := read(map[string]string{"SPILLWAY_RELAY_RULESET_HOLD_S": "8"}); present.Hold != 8*time.Second || present.Warnings != nil {
		t.Errorf("present name: %v, %q", present.Hold, present.Warnings)
	}
}
