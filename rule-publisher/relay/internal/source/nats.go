package source

import (
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/count"
)

// System selects the machine's root certificates instead of a file of authorities.
const System = "system"

// NATS describes how to reach the servers. The files are read at each connection, so they may be
// rotated.
type NATS struct {
	URL       string // one or more, separated by commas; contains the password
	CA        string // PEM file of the authorities of tls:// servers, or System; "": those of the machine, TLS optional
	Cert, Key string // PEM files of a client certificate; both or none
}

// User returns the NATS user of a cluster's relay.
func User(cluster string) string {
	return strings.ReplaceAll(names.NatsUserRelay, "{cluster}", cluster)
}

// Connect connects to NATS, and keeps trying for ever while the servers are unreachable. Each
// change of state is logged once, and `refusal` holds why a server refuses the relay. Replies go to
// an inbox prefix of this cluster alone, so that NATS permissions can keep other users out.
func Connect(to NATS, cluster string, refusal *Refusal, counters *count.Counters, log *slog.Logger) (*nats.Conn, error) {
	connected := func(word string) nats.ConnHandler {
		return func(c *nats.Conn) {
			refusal.tried(nil)
			log.Info(word, "server", c.ConnectedUrlRedacted())
		}
	}
	options := []nats.Option{
		nats.Name("spillway-relay " + cluster),
		nats.CustomInboxPrefix(strings.ReplaceAll(names.NatsInboxRelay, "{cluster}", cluster)),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 250*time.Millisecond),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.Timeout(2 * time.Second),
		nats.IgnoreAuthErrorAbort(), // credentials may be corrected while the relay runs
		nats.ReconnectBufSize(-1),   // unsent messages are kept by our own queue, not by the client
		nats.ConnectHandler(connected("connected to NATS")),
		nats.ReconnectHandler(connected("connected to NATS again")),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			before := refusal.Reason()
			if refusal.tried(err); refusal.Reason() != before && refusal.Reason() != "" {
				log.Error("NATS refuses this relay", "error", err)
			}
		}),
		nats.DisconnectErrHandler(func(c *nats.Conn, err error) {
			if c.IsClosed() { // by the relay itself, at its end
				return
			}
			log.Warn("NATS is away; the relay keeps serving what it has", "error", err)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			counters.Add(count.NATSErrors)
			refusal.record(err)
			log.Warn("NATS reports an error", "error", err)
		}),
	}
	switch to.CA {
	case "":
	case System:
		options = append(options, nats.Secure()) // like RootCAs, this demands TLS
	default:
		options = append(options, nats.RootCAs(to.CA))
	}
	if to.Cert != "" {
		options = append(options, nats.ClientCert(to.Cert, to.Key))
	}
	return nats.Connect(to.URL, options...)
}
