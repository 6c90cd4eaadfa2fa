package spillwayruntime

import (
	"io"
	"log/slog"
	"strings"
)

// NewLog returns a log of one JSON object per line, with the keys that every program of the project
// uses: at, level (as Python names it) and message.
func NewLog(to io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level, ReplaceAttr: projectKeys}))
}

func projectKeys(groups []string, attribute slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return attribute
	}
	switch attribute.Key {
	case slog.TimeKey:
		if attribute.Value.Kind() != slog.KindTime {
			return attribute
		}
		return slog.String("at", attribute.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	case slog.LevelKey:
		return slog.String(slog.LevelKey, strings.Replace(strings.ToLower(attribute.Value.String()), "warn", "warning", 1))
	case slog.MessageKey:
		attribute.Key = "message"
	}
	return attribute
}
