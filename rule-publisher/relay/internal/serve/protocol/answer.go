package protocol

import (
	"strings"
	"time"
)

// Answer is how the Envoy of a stream answered one version of one resource type.
type Answer struct {
	TypeURL string
	Version string // version of the Set
	Refused bool
	Detail  string        // the Envoy's message with a refusal
	Took    time.Duration // since the response was sent
}

// answer reads a request as the answer to the newest response of its type. isNew is false when the
// request is not an answer, or repeats one. A changed subscription repeats the last nonce and,
// after a refusal, also the version before it.
func (s *Subscriptions) answer(sub *subscription, r Request) (answer Answer, isNew bool) {
	last := sub.sent
	if r.nonce == "" || r.nonce != last.nonce {
		return Answer{}, false
	}
	if r.failure == nil && !s.Delta && r.version != last.version {
		return Answer{}, false
	}
	say := reported{last.version, bounded(r.failure.GetMessage()), r.failure != nil}
	isNew = sub.answered != say
	sub.answered = say
	return Answer{TypeURL: sub.typeURL, Version: say.version, Refused: say.refused, Detail: say.detail,
		Took: time.Since(last.at)}, isNew
}

// bounded truncates the message of one Envoy, so that it cannot fill the queue of acknowledgements.
func bounded(detail string) string {
	if len(detail) <= detailLimit {
		return detail
	}
	return strings.ToValidUTF8(detail[:detailLimit], "") + " …"
}
