package envoy

import (
	"fmt"
	"net/http"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"spillway.dev/contracts/names"
)

// maxSaid bounds the text of a denial, in bytes. Envoy accepts no route with a body above 4096.
const maxSaid = 1024

// deniedRoute returns a route that answers 503 itself and names the denials that leave requests no
// destination: in the body for people, in a header for programs. The answer is not an upstream
// failure, and nothing retries it.
func deniedRoute(service, name string, match *route.RouteMatch, denied []string, metadata *core.Metadata) *route.Route {
	list := strings.Join(denied, ", ")
	body := fmt.Sprintf("spillway: %s: denied in every cluster that has %s: %s\n", name, service, list)
	return &route.Route{Name: name, Match: match, Metadata: metadata,
		Action: &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{
			Status: http.StatusServiceUnavailable,
			Body:   &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: cut(body)}},
		}},
		ResponseHeadersToAdd: []*core.HeaderValueOption{{
			Header: &core.HeaderValue{Key: names.HttpHeaderDenied,
				Value: strings.ReplaceAll(cut(list), "%", "%%")}, // Envoy reads the value as a format string
			AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}},
	}
}

func cut(text string) string {
	if len(text) <= maxSaid {
		return text
	}
	return strings.ToValidUTF8(text[:maxSaid], "") + " ..."
}
