package table

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"spillway.dev/contracts/spillwayv1"
)

// Replay defines which requests may be sent again after an application may have received them.
type Replay string

const (
	ReplayNever      Replay = "never" // the default
	ReplayIdempotent Replay = "idempotent"
	ReplayAny        Replay = "any"
)

// Check defines how the endpoints of a service in other clusters are health-checked.
type Check string

const (
	CheckHTTP1 Check = "http1" // the default
	CheckHTTP2 Check = "http2"
	CheckOff   Check = "off"
)

const (
	shortestTimeout = time.Millisecond
	longestTimeout  = 24 * time.Hour
)

// Handling defines how callers' proxies treat requests for a service. A duration of 0 means no
// limit.
type Handling struct {
	Request time.Duration // limit of the whole request, including retries
	Idle    time.Duration // limit of the time without a byte in either direction
	PerTry  time.Duration // limit of one attempt, until the response begins
	Replay  Replay
	Check   Check
}

// unhandled is the handling of a service that the topology does not declare.
var unhandled = Handling{Replay: ReplayNever, Check: CheckHTTP1}

// parseHandling reads the handling of a service. It returns one error for each wrong key.
func parseHandling(key string, service *spillwayv1.Service) (Handling, []error) {
	timeouts := service.GetTimeouts()
	handling := Handling{Replay: Replay(service.GetReplay()), Check: Check(service.GetCheck())}
	var problems []error
	for _, limit := range []struct {
		name string
		from *durationpb.Duration
		to   *time.Duration
	}{
		{"request", timeouts.GetRequest(), &handling.Request},
		{"idle", timeouts.GetIdle(), &handling.Idle},
		{"per_try", timeouts.GetPerTry(), &handling.PerTry},
	} {
		d := limit.from.AsDuration()
		if d != 0 && (d < shortestTimeout || d > longestTimeout) {
			problems = append(problems, fmt.Errorf("%s.timeouts.%s: %s must be 0.001s..86400s, or 0s for none", key, limit.name, d))
		}
		*limit.to = d
	}
	if 0 < handling.Request && handling.Request < handling.PerTry {
		problems = append(problems, fmt.Errorf("%s.timeouts.per_try: %s must be at most request, %s", key, handling.PerTry, handling.Request))
	}
	switch handling.Replay {
	case "":
		handling.Replay = unhandled.Replay
	case ReplayNever, ReplayIdempotent, ReplayAny:
	default:
		problems = append(problems, fmt.Errorf("%s.replay: %q must be absent or one of %s, %s, %s",
			key, service.GetReplay(), ReplayNever, ReplayIdempotent, ReplayAny))
	}
	switch handling.Check {
	case "":
		handling.Check = unhandled.Check
	case CheckHTTP1, CheckHTTP2, CheckOff:
	default:
		problems = append(problems, fmt.Errorf("%s.check: %q must be absent or one of %s, %s, %s",
			key, service.GetCheck(), CheckHTTP1, CheckHTTP2, CheckOff))
	}
	return handling, problems
}
