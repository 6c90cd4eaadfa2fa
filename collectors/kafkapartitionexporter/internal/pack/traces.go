package pack

// fieldTraceID is the field number in Span.
const fieldTraceID = 1

// Traces keeps every trace in one partition. A span is never cut.
var Traces = Signal{
	key:   func(_, span []byte) ([]byte, error) { return first(span, fieldTraceID) },
	count: func([]byte) (int, error) { return 1, nil },
	cut:   wholeSpan,
}

func wholeSpan(span field, room Limits) ([]piece, int, error) {
	if len(span.raw) > room.Hard {
		return nil, 1, nil
	}
	return []piece{{span.raw, 1}}, 0, nil
}
