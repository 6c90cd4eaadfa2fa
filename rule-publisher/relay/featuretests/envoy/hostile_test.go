package envoy

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/table/traffic"
	"spillway.dev/relay/internal/testkit"
)

// hostile is a ruleset made from a valid one. `reason` is a part of the reason for which it must be
// refused, or "" when it must be taken and do no harm.
type hostile struct {
	name   string
	reason string
	spoil  func(*spillwayv1.Ruleset)
	bytes  func(good []byte) []byte
}

func first(r *spillwayv1.Ruleset) *spillwayv1.Rule { return r.Rules[0] }

var hostileRulesets = []hostile{
	{name: "weights that do not sum", reason: "weights sum to 9999", spoil: func(r *spillwayv1.Ruleset) { first(r).Destinations[0].Weight-- }},
	{name: "a weight of 2^32-1", reason: "weights sum to 4294971295", spoil: func(r *spillwayv1.Ruleset) { first(r).Destinations[0].Weight = 1<<32 - 1 }},
	{name: "no destinations", reason: "weights sum to 0", spoil: func(r *spillwayv1.Ruleset) { first(r).Destinations = nil }},
	{name: "a destination twice", reason: `cluster "north" is listed twice`, spoil: func(r *spillwayv1.Ruleset) { first(r).Destinations[1].Cluster = "north" }},
	{name: "another cluster's rules", reason: `source_cluster: "south"`, spoil: func(r *spillwayv1.Ruleset) { first(r).SourceCluster = "south" }},
	{name: "no source service", reason: "source_service: empty", spoil: func(r *spillwayv1.Ruleset) { first(r).SourceService = "" }},
	{name: "a rule twice", reason: "a second rule", spoil: func(r *spillwayv1.Ruleset) { r.Rules = append(r.Rules, r.Rules[0]) }},
	{name: "an expiry that is over", reason: "must be in the future", spoil: func(r *spillwayv1.Ruleset) { r.ExpiresAt = timestamppb.New(time.Now().Add(-time.Hour)) }},
	{name: "no expiry", reason: "expires_at: missing", spoil: func(r *spillwayv1.Ruleset) { r.ExpiresAt = nil }},
	{name: "an expiry out of range", reason: "expires_at: missing or out of range", spoil: func(r *spillwayv1.Ruleset) { r.ExpiresAt.Nanos = -1 }},
	{name: "a version that closes the door", reason: "at most 9007199254740992", spoil: func(r *spillwayv1.Ruleset) { r.Version = 1<<64 - 1 }},
	{name: "an enormous input window", reason: "input_window.id: 100000 bytes", spoil: func(r *spillwayv1.Ruleset) { r.InputWindow.Id = strings.Repeat("w", 100_000) }},
	{name: "thousands of broken rules", reason: "weights sum to 0", spoil: func(r *spillwayv1.Ruleset) {
		for i := range 5000 {
			r.Rules = append(r.Rules, &spillwayv1.Rule{SourceCluster: "north", SourceService: fmt.Sprint("s", i), TrafficClass: first(r).TrafficClass})
		}
	}},
	{name: "truncated", reason: "must be a spillway.v1.Ruleset", bytes: func(good []byte) []byte { return good[:len(good)-3] }},
	{name: "not UTF-8", reason: "must be a spillway.v1.Ruleset", bytes: func(good []byte) []byte {
		return []byte(strings.Replace(string(good), "/items/{id}", "/items/\xff\xfe}", 1))
	}},
	{name: "rubbish of 3 MB", reason: "must be a spillway.v1.Ruleset", bytes: func([]byte) []byte { return []byte(strings.Repeat("\xff", 3_000_000)) }},

	{name: "unknown clusters take nothing", spoil: func(r *spillwayv1.Ruleset) {
		first(r).Destinations = append(first(r).Destinations, &spillwayv1.Destination{Cluster: "nowhere\x00\x1b[2J"})
	}},
	{name: "an expiry in 7 000 years", spoil: func(r *spillwayv1.Ruleset) {
		r.ExpiresAt = timestamppb.New(time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC))
	}},
	{name: "classes that no proxy can match", spoil: func(r *spillwayv1.Ruleset) {
		for i, text := range []string{"", "no slash", "/{", "/a b", "/\x00", "/ü", "/**", "/{a}{b}", strings.Repeat("/a", 1000)} {
			r.TrafficClasses = append(r.TrafficClasses, &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: text},
				&spillwayv1.TrafficClass{Service: "shop", Method: text, PathTemplate: fmt.Sprint("/m", i)},
				&spillwayv1.TrafficClass{Service: text, Method: "GET", PathTemplate: "/"})
		}
		r.TrafficClasses = append(r.TrafficClasses, &spillwayv1.TrafficClass{Service: "shop", Method: strings.Repeat("A", 100_000), PathTemplate: "/m"}, nil)
	}},
	{name: "a class many times", spoil: func(r *spillwayv1.Ruleset) {
		for range 1000 {
			r.TrafficClasses = append(r.TrafficClasses, r.TrafficClasses[0])
		}
	}},
	{name: "a reason of 3 MB with control characters", spoil: func(r *spillwayv1.Ruleset) { first(r).Reason = strings.Repeat("\x1b]0;x\x07", 500_000) }},
	{name: "10 000 classes", spoil: func(r *spillwayv1.Ruleset) {
		for i := range 10_000 {
			r.TrafficClasses = append(r.TrafficClasses, &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: fmt.Sprintf("/c%d/{id}", i)})
		}
	}},
}

// TestRealEnvoySurvivesHostileRulesets sends one hostile ruleset after the other to a real Envoy
// under constant requests. No request fails, and the weights stay those of the last valid ruleset.
// Each ruleset that must be refused is counted, and reported as a NACK with its reason. A valid
// ruleset afterwards is taken as usual.
func TestRealEnvoySurvivesHostileRulesets(t *testing.T) {
	server := harness.StartNATSWith(t, &natsserver.Options{StoreDir: t.TempDir(), Port: natsserver.RANDOM_PORT, MaxPayload: 8 << 20})
	p, conf, north := harness.Shop(t, server, 1)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), north)
	p.Put(harness.Ruleset(1, time.Hour, 6000, 4000))
	testkit.Eventually(t, "version 1 is in force", func() bool { return harness.WeightsAre(e, 6000, 4000) })
	requests := harness.KeepAsking(t, e)
	for i, h := range hostileRulesets {
		t.Run(h.name, func(t *testing.T) {
			version := uint64(i + 2)
			p.T = t
			refusals := func() uint64 {
				return r.Counters().Get(count.RulesetsRefused) + r.Counters().Get(count.RulesetsUndecodable) + r.Counters().Get(count.RulesetsStale)
			}
			refused := refusals()
			p.PutBytes(h.make(t, version))
			if h.reason != "" {
				testkit.Eventually(t, "the refusal is counted", func() bool { return refusals() == refused+1 })
				p.Ack(func(a *spillwayv1.Acknowledgement) bool {
					return a.GetOutcome() == spillwayv1.Outcome_OUTCOME_NACK && a.GetEnvoy() == "north/relay" && strings.Contains(a.GetDetail(), h.reason)
				})
			} else {
				// Envoy needs seconds for 10 000 routes.
				for deadline := time.Now().Add(time.Minute); r.Status().InForce["gate"] != version; time.Sleep(20 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal("not in force at the Envoy within a minute")
					}
				}
			}
			if !harness.WeightsAre(e, 6000, 4000) {
				t.Errorf("the weights are others now")
			}
		})
	}
	p.T = t
	p.Put(harness.Ruleset(1000, time.Hour, 3000, 7000))
	testkit.Eventually(t, "the next good version is in force", func() bool { return harness.WeightsAre(e, 3000, 7000) })
	if asked, failed := requests(); failed != 0 || asked < 100 {
		t.Errorf("%d of %d requests failed", failed, asked)
	}
	if nacks := r.Counters().Get(count.AnswersRefused); nacks != 0 {
		t.Errorf("Envoy itself refused %d versions", nacks)
	}
}

func (h hostile) make(t *testing.T, version uint64) []byte {
	t.Helper()
	r := harness.Ruleset(version, time.Hour, 6000, 4000)
	if h.spoil != nil {
		h.spoil(r)
	}
	value, err := proto.Marshal(r)
	testkit.Must(t, err)
	if h.bytes != nil {
		value = h.bytes(value)
	}
	return value
}

var templateProblem = regexp.MustCompile(`(?i)(path_match_policy|pattern|template|regex).*`)

// TestRealEnvoyTakesEveryTemplateThatTheRelayDoes checks that a real Envoy accepts every template
// that the relay lets through. Envoy validates one configuration with thousands of random
// templates.
func TestRealEnvoyTakesEveryTemplateThatTheRelayDoes(t *testing.T) {
	program := testkit.EnvoyProgram(t)
	random := rand.New(rand.NewPCG(1, 2))
	patterns := map[string]bool{}
	for tries := 0; len(patterns) < 2000 && tries < 2_000_000; tries++ {
		parsed, err := traffic.ParseTemplate(randomTemplate(random))
		if err != nil {
			continue
		}
		if pattern, err := parsed.Pattern(); err == nil {
			patterns[pattern] = true
		}
	}
	var routes strings.Builder
	for pattern := range patterns {
		fmt.Fprintf(&routes, `
              - match: {path_match_policy: {name: m, typed_config: {"@type": type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig, path_template: '%s'}}}
                direct_response: {status: 200}`, strings.ReplaceAll(pattern, "'", "''"))
	}
	config := strings.Replace(validated, "ROUTES", routes.String(), 1)
	path := filepath.Join(t.TempDir(), "config.yaml")
	testkit.Must(t, os.WriteFile(path, []byte(config), 0o600))
	out, err := exec.Command(program, "--mode", "validate", "-c", path, "-l", "error").CombinedOutput()
	if err != nil {
		t.Errorf("Envoy refuses one of %d templates: %s\n%.2000s", len(patterns), templateProblem.Find(out), out)
	}
}

const validated = `
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: h
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
          route_config:
            virtual_hosts:
            - name: v
              domains: ["*"]
              routes:ROUTES
`

// randomTemplate mixes the usual parts of templates with parts that could break one.
func randomTemplate(random *rand.Rand) string {
	pieces := []string{"/", "/", "/", "{a}", "{b}", "{id}", "{long_variable_name_x}", "{a-b}", "{1}", "{a", "}", "*", "**", "a", "b", "0", "-", ".", "_", "~",
		"%", "%2", "%20", "%zz", "!", "$", "&", "'", "(", ")", "+", ",", ";", ":", "@", "=", "{a=*}", "{*}", "?", "#", " ", "\\", "|", "[", "^"}
	var out strings.Builder
	out.WriteString("/")
	for range random.IntN(14) {
		out.WriteString(pieces[random.IntN(len(pieces))])
	}
	return out.String()
}
