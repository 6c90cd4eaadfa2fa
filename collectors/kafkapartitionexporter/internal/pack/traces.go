package pack

// fieldTraceID is that of Span.
const fieldTraceID = 1

// Traces keeps every trace in one partition. A span is never cut.
var Traces = Signal{
	key:   func(_, span []byte) ([]byte, error) { return first(span, fieldTraceID) },
	count: func([]byte) (int, error) { return 1, nil },
	cut:   func([]byte, int) ([]piece, int, error) { return nil, 1, nil },
}
