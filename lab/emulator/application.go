package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"
)

// Application is the emulated application: its services, and what each endpoint does.
type Application struct {
	// CallTimeoutMs limits every call from one service to the next, in milliseconds.
	CallTimeoutMs float64            `yaml:"call_timeout_ms"`
	Services      map[string]Service `yaml:"services"`
	// Keys are the values of path variables that users ask for. Only the load generator uses them.
	Keys map[string]Keys `yaml:"keys"`
}

// Service is one worker pool per pod, with a bounded FIFO queue in front of it.
type Service struct {
	Workers        int        `yaml:"workers"`
	Queue          int        `yaml:"queue"`            // requests that may wait; more are refused at once
	QueueTimeoutMs float64    `yaml:"queue_timeout_ms"` // longest wait for a worker
	Silent         bool       `yaml:"silent"`           // reports no CPU use
	Endpoints      []Endpoint `yaml:"endpoints"`
}

// Endpoint is a method and a path template, the work of one request, and the calls that the request
// then makes.
type Endpoint struct {
	Method        string       `yaml:"method"`
	Path          string       `yaml:"path"`
	ServiceTime   ServiceTime  `yaml:"service_time"`
	ResponseBytes int          `yaml:"response_bytes"`
	Calls         []Stage      `yaml:"calls"`
	ErrorRate     float64      `yaml:"error_rate"` // probability (0..1) that a request fails after its service time
	Cache         *CacheSpec   `yaml:"cache"`
	Contention    []Contention `yaml:"contention"`
}

// CacheSpec is a least-recently-used cache of one endpoint, in each pod for itself. A request with a
// cached key holds its worker for Hit only and makes no calls.
type CacheSpec struct {
	Key      string       `yaml:"key"`      // the variable of the endpoint's path whose value is the key
	Capacity int          `yaml:"capacity"` // keys
	Hit      *ServiceTime `yaml:"hit"`      // nil: no time
}

// Contention names another endpoint of the same service that makes this one slower. The service
// time is multiplied by 1 + sum of rate / DoublesAtRps over all entries (SLATE Fig. 16).
type Contention struct {
	Method       string   `yaml:"method"`
	Path         string   `yaml:"path"`
	DoublesAtRps float64  `yaml:"doubles_at_rps"`
	WindowMs     *float64 `yaml:"window_ms"` // time constant of the average; default 1000
}

// window returns the time constant of the average rate.
func (c Contention) window() time.Duration {
	if c.WindowMs == nil {
		return time.Second
	}
	return max(time.Nanosecond, milliseconds(*c.WindowMs))
}

// KeyRange are the keys First, First+1, ..., First+Count-1.
type KeyRange struct {
	First int `yaml:"first"`
	Count int `yaml:"count"`
}

// Keys are the values that users put into a path variable. Clusters may have other ranges.
type Keys struct {
	KeyRange   `yaml:",inline"`
	Popularity struct {
		Distribution string   `yaml:"distribution"` // uniform (default) or zipf
		Exponent     *float64 `yaml:"exponent"`     // zipf only
	} `yaml:"popularity"`
	Clusters map[string]KeyRange `yaml:"clusters"`
}

// Stage is a set of calls made in parallel. The stages of an endpoint run one after the other.
type Stage []Call

// Call is one call to another service. Path variables take the values of the inbound request.
type Call struct {
	Service      string   `yaml:"service"`
	Method       string   `yaml:"method"`
	Path         string   `yaml:"path"`
	Probability  *float64 `yaml:"probability"` // probability (0..1) that a request makes this call; default 1
	Count        *int     `yaml:"count"`       // number of parallel repetitions; default 1
	RequestBytes int      `yaml:"request_bytes"`
	Optional     bool     `yaml:"optional"` // a failure of this call does not fail the request
}

// ServiceTime is the distribution of the time for which one request holds a worker.
type ServiceTime struct {
	Distribution string  `yaml:"distribution"`
	MeanMs       float64 `yaml:"mean_ms"`
	CV           float64 `yaml:"cv"` // standard deviation / mean; lognormal only
}

// LoadApplication reads and checks an application file. Each problem names the key, the value and
// what is allowed. A file that cannot be read or parsed is one problem.
func LoadApplication(path string) (Application, []string) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Application{}, []string{err.Error()}
	}
	application, problems := ParseApplication(content)
	for i := range problems {
		problems[i] = path + ": " + problems[i]
	}
	return application, problems
}

// ParseApplication decodes the content strictly (an unknown key is a problem) and checks the
// result.
func ParseApplication(content []byte) (Application, []string) {
	var application Application
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&application); err != nil {
		var typed *yaml.TypeError
		switch {
		case errors.As(err, &typed):
			return Application{}, typed.Errors
		case errors.Is(err, io.EOF):
			return Application{}, []string{"the file is empty; allowed: a mapping with `services`"}
		default:
			return Application{}, []string{err.Error()}
		}
	}
	return application, application.problems()
}

// endpointName returns the name of an endpoint in messages and in the call graph.
func endpointName(service string, endpoint Endpoint) string {
	return fmt.Sprintf("%s %s %s", service, endpoint.Method, endpoint.Path)
}
