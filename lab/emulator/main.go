// Command emulator is one pod of an emulated application. It answers as the application's YAML file
// says, with the latency of its worker pool's queue, and calls the next services through its
// sidecar.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"spillway.dev/contracts/spillwayruntime"
)

const (
	reportEvery    = time.Second
	shutdownWithin = 4 * time.Second
	exitConfig     = 64 // EX_USAGE
)

func main() {
	slog.SetDefault(spillwayruntime.NewLog(os.Stderr, slog.LevelInfo))
	config, problems := ReadConfig(os.Getenv)
	var application Application
	var service Service
	if config.ApplicationPath != "" {
		var more []string
		if application, more = LoadApplication(config.ApplicationPath); len(more) == 0 && config.Service != "" {
			service, more = config.serviceOf(application)
		}
		problems = append(problems, more...)
	}
	if len(problems) > 0 {
		for _, problem := range problems {
			fmt.Fprintln(os.Stderr, "emulator: "+problem)
		}
		os.Exit(exitConfig)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, config, application, service); err != nil {
		slog.Error("emulator stopped", "error", err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, config Config, application Application, service Service) error {
	chance := NewChance(rand.Uint64())
	timeout := time.Duration(application.CallTimeoutMs * float64(time.Millisecond))
	pod := NewPod(config, service, NewCaller(config.Outbound, timeout, chance), chance)
	handler, err := pod.Handler(service.Endpoints)
	if err != nil {
		return err
	}
	handler = WithLoadReports(handler, pod.pool, config.LoadReportWindow)
	provider := Silence()
	if !service.Silent {
		if provider, err = StartTelemetry(ctx, config, pod.pool.TakeUtilisation, reportEvery); err != nil {
			return err
		}
	}
	// Both listeners are open before either serves, so a healthy pod accepts requests.
	listener, err := net.Listen("tcp", config.Listen)
	if err != nil {
		return fmt.Errorf("LAB_LISTEN: %w", err)
	}
	healthListener, err := net.Listen("tcp", config.HealthListen)
	if err != nil {
		return fmt.Errorf("SPILLWAY_HEALTH_LISTEN: %w", err)
	}
	server, health := applicationServer(handler), &http.Server{Handler: healthHandler(pod)}
	stopped := make(chan error, 2)
	go func() { stopped <- server.Serve(listener) }()
	go func() { stopped <- health.Serve(healthListener) }()
	slog.Info("serving", "service", config.Service, "cluster", config.Cluster, "pod", config.Pod,
		"listen", config.Listen, "workers", service.Workers, "queue", service.Queue)

	select {
	case err = <-stopped:
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.Background(), shutdownWithin)
	defer cancel()
	closed := server.Shutdown(closing)
	_ = health.Close()
	_ = provider.Shutdown(closing) // best effort: sends the last reading
	slog.Info("stopped", "requests", pod.Snapshot())
	if err != nil {
		return err
	}
	if errors.Is(closed, context.DeadlineExceeded) {
		slog.Warn("requests were still running after the grace period", "seconds", shutdownWithin.Seconds())
	}
	return nil
}

func applicationServer(handler http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: handler, Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second}
}

// healthHandler serves /livez and /readyz, /counts with the outcomes of all requests so far as JSON,
// and /state, through which an experiment changes the pod.
func healthHandler(pod *Pod) http.Handler {
	mux := http.NewServeMux()
	spillwayruntime.HandleHealth(mux, func() spillwayruntime.Report { return spillwayruntime.Report{} })
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(pod.Snapshot())
	})
	pod.state.Handle(mux)
	return mux
}
