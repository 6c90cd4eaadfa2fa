package source

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// Connect to NATS now or as soon as it is there, for ever. Each change of state is logged once.
func Connect(url, cluster string, log *slog.Logger) (*nats.Conn, error) {
	return nats.Connect(url,
		nats.Name("spillway-relay "+cluster),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500*time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 250*time.Millisecond),
		nats.PingInterval(5*time.Second),
		nats.MaxPingsOutstanding(2),
		nats.Timeout(2*time.Second),
		nats.IgnoreAuthErrorAbort(), // credentials may be put right while we run
		nats.ReconnectBufSize(-1),   // what cannot be sent now is our queue's matter, not the client's
		nats.ConnectHandler(func(c *nats.Conn) { log.Info("connected to NATS", "server", c.ConnectedUrlRedacted()) }),
		nats.ReconnectHandler(func(c *nats.Conn) { log.Info("connected to NATS again", "server", c.ConnectedUrlRedacted()) }),
		nats.DisconnectErrHandler(func(c *nats.Conn, err error) {
			if c.IsClosed() { // by us, at the end
				return
			}
			log.Warn("NATS is away; the relay goes on with what it has", "error", err)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS", "error", err) }),
	)
}

// pause waits; false when the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
