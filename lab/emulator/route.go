package main

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
)

var variableInPath = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// muxPath returns the ServeMux form of a path template. A template "/" matches exactly that path.
func muxPath(template string) string {
	if template == "/" {
		return "/{$}"
	}
	return template
}

// register adds a pattern. ServeMux panics when two patterns conflict; register returns that as an
// error.
func register(mux *http.ServeMux, pattern string, handler http.Handler) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	mux.Handle(pattern, handler)
	return nil
}

// expandPath fills in a call's path template with the inbound request's path values.
func expandPath(template string, value func(name string) string) string {
	return variableInPath.ReplaceAllStringFunc(template, func(variable string) string {
		return url.PathEscape(value(variable[1 : len(variable)-1]))
	})
}
