package control

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/table"
)

// model is what the loop should know after the events so far.
type model struct {
	version  uint64
	south    map[string]uint32 // of the ruleset in force; nil: none, or expired
	hasSouth bool              // the network has endpoints in south
	envoys   map[string]map[string]int
	answers  map[string]*answers // by service
	watched  map[string]*watched
}

// TestAnySequenceOfEvents checks random sequences of rulesets (newer, older, repeated, expired),
// answers to every type, Envoys that come and go, expiry, and changes of the network. After every
// event, what is served is consistent, and no route names a cluster that was not sent long enough
// ago. After the last event, each service is served what the newest ruleset says. Where an Envoy
// refused that, the service gets what was accepted and not refused, as far as a consistent bundle
// can be made of it. Nothing is kept of what is gone.
func TestAnySequenceOfEvents(t *testing.T) {
	networks := []*table.Network{mesh(t, "north", "south", "far"), mesh(t, "north", "far"), mesh(t, "north", "south")}
	reverted := 0
	for seed := range uint64(300) {
		inBubble(t, func(t *testing.T) { reverted += anySequence(t, seed, networks) })
	}
	if reverted < 30 {
		t.Errorf("only %d services ended with what they went back to", reverted)
	}
}

// anySequence returns how many services ended with something other than what they want.
func anySequence(t *testing.T, seed uint64, networks []*table.Network) int {
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBed(t, networks[0])
	m := &model{hasSouth: true, envoys: map[string]map[string]int{}, answers: map[string]*answers{}, watched: map[string]*watched{}}
	var history []string
	for range 60 {
		history = append(history, happen(b, m, networks, random))
		if err := m.watch(b); err != nil {
			t.Fatalf("seed %d: %v\nafter %q", seed, err, history)
		}
	}
	b.settle()
	reverted, err := m.check(b)
	if err != nil {
		t.Fatalf("seed %d: %v\nafter %q", seed, err, history)
	}
	return reverted
}

// happen applies one random event to the loop and to the model, and returns its name.
func happen(b *bed, m *model, networks []*table.Network, random *rand.Rand) string {
	service := []string{"a", "b", "c"}[random.IntN(3)]
	envoy := fmt.Sprint(service, "/", random.IntN(3))
	switch random.IntN(14) {
	case 0, 1, 2:
		return m.ruleset(b, random)
	case 3:
		if b.rules != nil {
			b.rules.ExpiresAt = time.Now().Add(-time.Second)
			b.rebuild()
			m.south = nil
		}
		return "expiry"
	case 4:
		i := random.IntN(len(networks))
		b.network, m.hasSouth = networks[i], i != 1
		b.rebuild()
		return fmt.Sprint("network ", i)
	case 5, 6:
		b.connected(service, envoy)
		if m.envoys[service] == nil {
			m.envoys[service] = map[string]int{}
		}
		m.envoys[service][envoy]++
		return "connect " + envoy
	case 7:
		if m.envoys[service][envoy] == 0 {
			return "nothing"
		}
		b.disconnected(service, envoy)
		if m.envoys[service][envoy]--; m.envoys[service][envoy] == 0 {
			delete(m.envoys[service], envoy)
		}
		return "disconnect " + envoy
	case 8:
		time.Sleep(time.Duration(random.Int64N(int64(forgetAfter))))
		b.forget(time.Now())
		return "forget"
	case 9:
		time.Sleep(time.Duration(random.Int64N(int64(settle))))
		b.advance(time.Now())
		return "step"
	default:
		return m.answer(b, service, envoy, types[random.IntN(3)], random.IntN(3) == 0)
	}
}

func (m *model) ruleset(b *bed, random *rand.Rand) string {
	version := m.version + uint64(random.IntN(4))
	south := map[string]uint32{}
	for _, source := range []string{"a", "b", "c"} {
		if random.IntN(4) > 0 {
			south[source] = uint32(random.IntN(3)) * 5000
		}
	}
	lasting := time.Hour
	if random.IntN(8) == 0 {
		lasting = -time.Second
	}
	value, err := proto.Marshal(rulesetOf(version, lasting, south))
	if err != nil {
		b.t.Fatal(err)
	}
	b.takeRuleset(signed(value))
	switch {
	case version <= m.version, lasting < 0:
	default:
		m.version, m.south = version, south
	}
	return fmt.Sprint("ruleset ", version, " ", lasting, " ", south)
}

func (m *model) answer(b *bed, service, envoy, typeURL string, refusal bool) string {
	s := b.services[service]
	if s == nil || m.envoys[service][envoy] == 0 {
		return "nothing"
	}
	set := s.served[typeURL]
	m.of(service, s).note(typeURL, set, refusal)
	b.answered(serve.Answer{Service: service, Envoy: envoy, TypeURL: typeURL, Version: set.Version, Refused: refusal})
	return fmt.Sprint("answer ", envoy, " ", set.Version, " refused ", refusal)
}

func (m *model) check(b *bed) (reverted int, err error) {
	for service, envoys := range m.envoys {
		if len(envoys) > 0 && b.services[service] == nil {
			return 0, fmt.Errorf("%s is forgotten with %d Envoys connected", service, len(envoys))
		}
	}
	for name, s := range b.services {
		if len(s.envoys) != len(m.envoys[name]) || len(s.refused) > 3 || len(s.accepted) > 3 || len(s.called) > 3 {
			return 0, fmt.Errorf("%s keeps %d Envoys of %d, refusals of %d types, sets of %d, %d callees", name, len(s.envoys), len(m.envoys[name]),
				len(s.refused), len(s.accepted), len(s.called))
		}
		if err := m.of(name, s).check(s.wanted, s.served); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		if got, want := share(b.t, s.wanted[resources.RouteType]), m.share(name); got != want {
			return 0, fmt.Errorf("%s sends %d to south, want %d", name, got, want)
		}
		if !s.served.Same(s.wanted) {
			reverted++
		}
	}
	if len(b.services) != len(b.ports.Cache.Sizes()) {
		return 0, fmt.Errorf("%d services, %d in the cache", len(b.services), len(b.ports.Cache.Sizes()))
	}
	return reverted, nil
}

// share returns the share that the service should send to south.
func (m *model) share(service string) uint32 {
	if !m.hasSouth {
		return 0
	}
	return m.south[service]
}

// share returns the share that the routes send to south.
func share(t *testing.T, set resources.Set) (weight uint32) {
	for r, w := range weighted(t, set) {
		if r.GetName() != names.XdsCatchAllRoute && strings.HasSuffix(w.GetName(), names.XdsClusterSeparator+"south") {
			weight = w.GetWeight().GetValue()
		}
	}
	return weight
}
