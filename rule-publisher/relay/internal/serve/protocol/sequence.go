package protocol

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"spillway.dev/relay/internal/serve/resources"
)

// Subscriptions is what one stream asks for, and what it was sent, by type. The zero value is a
// stream of the state-of-the-world variant before its first request.
type Subscriptions struct {
	Delta bool

	subs    []*subscription // in the order in which types must reach an Envoy
	warming resources.Items // clusters sent before endpoints were asked for
	nonce   uint64
	placed  bool
}

// Placed reports whether the Envoy holds resources that it accepted, on this stream or, as it said
// when it reconnected, before.
func (s *Subscriptions) Placed() bool { return s.placed }

// Take applies a request. isNew is true when the request is an answer that was not given before.
// The error says which limit the Envoy exceeds.
func (s *Subscriptions) Take(r Request) (answer Answer, isNew bool, err error) {
	sub, err := s.subscription(r)
	if err != nil {
		return Answer{}, false, err
	}
	answer, isNew = s.answer(sub, r)
	s.placed = s.placed || len(r.initial) > 0 || r.version != "" || isNew && !answer.Refused
	s.apply(sub, r, answer.Refused)
	if len(r.names) > 0 {
		err = s.overfull()
	}
	return answer, isNew, err
}

// subscription returns the subscription to the type of the request. It creates the subscription at
// the first request of the type.
func (s *Subscriptions) subscription(r Request) (*subscription, error) {
	if sub := s.of(r.typeURL); sub != nil {
		return sub, nil
	}
	if len(s.subs) == typesPerStream {
		return nil, tooManyTypes(r.typeURL)
	}
	sub := newSubscription(r, s.Delta)
	s.subs = append(s.subs, sub)
	slices.SortStableFunc(s.subs, func(a, b *subscription) int {
		return cmp.Compare(slices.Index(resources.Types, a.typeURL), slices.Index(resources.Types, b.typeURL))
	})
	return sub, nil
}

// of returns the subscription to the type, or nil when the Envoy has not asked for it.
func (s *Subscriptions) of(typeURL string) *subscription {
	for _, sub := range s.subs {
		if sub.typeURL == typeURL {
			return sub
		}
	}
	return nil
}

// apply applies a request to the subscription. Endpoints of clusters that were sent before the
// Envoy asked for endpoints are marked to be sent again.
func (s *Subscriptions) apply(sub *subscription, r Request, refused bool) {
	sub.take(r, refused)
	if sub.typeURL == resources.EndpointType && s.warming != nil {
		sub.forget(s.warming.Names())
		s.warming = nil
	}
}

// Next returns the next response that is due of the bundle, or nil. The order is clusters,
// endpoints, routes, and then the removal of clusters.
func (s *Subscriptions) Next(bundle resources.Bundle) *Response {
	if bundle == nil {
		return nil
	}
	for _, sub := range s.subs {
		if out := sub.due(bundle[sub.typeURL]); out != nil {
			if sub.typeURL == resources.ClusterType {
				s.warm(sub, out.changed)
			}
			return s.number(sub, out)
		}
	}
	if clusters := s.of(resources.ClusterType); clusters != nil && clusters.leaving && s.routed() {
		if out := clusters.leave(bundle[resources.ClusterType]); out != nil {
			return s.number(clusters, out)
		}
	}
	return nil
}

// number gives the response the next nonce and records it as the newest of its subscription.
func (s *Subscriptions) number(sub *subscription, out *Response) *Response {
	s.nonce++
	out.nonce = strconv.FormatUint(s.nonce, 10)
	sub.sent = sent{out.nonce, out.version, time.Now()}
	return out
}

// warm makes the endpoints of changed clusters follow them, even when the endpoints are the same.
// Without them, Envoy may take up to 15 s until it uses a changed cluster ("resource warming" of
// the protocol).
func (s *Subscriptions) warm(clusters *subscription, changed resources.Items) {
	if endpoints := s.of(resources.EndpointType); endpoints != nil {
		endpoints.forget(changed.Names())
	} else if clusters.sent.nonce == "" {
		// A reconnecting Envoy asks for everything before it reads the first response. The
		// endpoints that it will say it holds belong to the clusters before the change.
		s.warming = changed
	}
}

// routed reports whether the Envoy has accepted the routes that are served, and so uses none of the
// clusters to be removed. A reconnecting Envoy asks for its routes before it answers for its
// clusters.
func (s *Subscriptions) routed() bool {
	routes := s.of(resources.RouteType)
	return routes == nil || routes.open && !routes.answered.refused
}
