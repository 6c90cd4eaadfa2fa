package source

import (
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/count"
)

// System names the root certificates of the machine in place of a file of authorities.
const System = "system"

// NATS says how to reach the servers. Files are read at each connection, so they may be rotated.
type NATS struct {
	URL       string // one or more, separated by commas; holds the password
	CA        string // PEM file of the authorities of tls:// servers, or System; "": those of the machine
	Cert, Key string // PEM files of a client certificate; both or none
}

// User is the NATS user of a cluster's relay.
func User(cluster string) string {
	return strings.ReplaceAll(names.NatsUserRelay, "{cluster}", cluster)
}

// Connect to NATS now or as soon as it is there, for ever. Each change of state is logged once, and refusal
// has it. Replies come to an inbox of the cluster's own, so that permissions can keep others out.
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
		nats.IgnoreAuthErrorAbort(), // credentials may be put right while we run
		nats.ReconnectBufSize(-1),   // what cannot be sent now is our queue's matter, not the client's
		nats.ConnectHandler(connected("connected to NATS")),
		nats.ReconnectHandler(connected("connected to NATS again")),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			before := refusal.Reason()
			if refusal.tried(err); refusal.Reason() != before && refusal.Reason() != "" {
				log.Error("NATS refuses this relay", "error", err)
			}
		}),
		nats.DisconnectErrHandler(func(c *nats.Conn, err error) {
			if c.IsClosed() { // by us, at the end
				return
			}
			log.Warn("NATS is away; the relay goes on with what it has", "error", err)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			counters.Add(count.NATSErrors)
			refusal.heard(err)
			log.Warn("NATS", "error", err)
		}),
	}
	switch to.CA {
	case "":
	case System:
		options = append(options, nats.Secure()) // as an authority of one's own, it demands TLS
	default:
		options = append(options, nats.RootCAs(to.CA))
	}
	if to.Cert != "" {
		options = append(options, nats.ClientCert(to.Cert, to.Key))
	}
	return nats.Connect(to.URL, options...)
}
