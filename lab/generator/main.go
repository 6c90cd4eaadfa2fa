// Command generator sends open-loop load at one cluster's entry with vegeta, for as long as its
// standard input is open. Each line of the input is a schedule that replaces the one before. Load
// therefore never stops between two rounds of an experiment.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

const exitConfig = 64 // EX_USAGE

type options struct {
	name, targets, output string
	timeout               time.Duration
	maxWorkers, seed      uint64
}

func main() {
	var o options
	flags := flag.NewFlagSet("generator", flag.ContinueOnError)
	flags.StringVar(&o.name, "name", "", "name of the cluster, in the results")
	flags.StringVar(&o.targets, "targets", "", "file with vegeta's JSON targets, which are sent in turns")
	flags.StringVar(&o.output, "output", "", "file for the results, vegeta's JSON lines")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "of one request")
	flags.Uint64Var(&o.maxWorkers, "max-workers", 1000, "most requests at the same time")
	flags.Uint64Var(&o.seed, "seed", 1, "of the times of requests")
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(exitConfig)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "generator: "+err.Error())
		os.Exit(1)
	}
}

// run sends load until the input ends, a line of it is wrong, or the context is done. Requests
// that were sent by then are awaited. It writes "ready" before it reads the first schedule.
func run(ctx context.Context, o options, input io.Reader, ready io.Writer) error {
	targeter, err := readTargets(o.targets)
	if err != nil {
		return err
	}
	output, err := os.Create(o.output)
	if err != nil {
		return fmt.Errorf("-output: %w", err)
	}
	defer output.Close()
	arrivals := NewArrivals(o.seed)
	attacker := vegeta.NewAttacker(vegeta.Timeout(o.timeout), vegeta.MaxWorkers(o.maxWorkers),
		vegeta.Redirects(vegeta.NoFollow), vegeta.MaxBody(0), vegeta.Proxy(nil))
	results := attacker.Attack(targeter, arrivals, 0, o.name)
	failed := make(chan error, 1)
	go func() {
		failed <- follow(input, arrivals) // before the end, so that it is seen after it
		arrivals.Stop()
	}()
	context.AfterFunc(ctx, arrivals.Stop)
	fmt.Fprintln(ready, "ready")
	if err := write(output, results); err != nil {
		return fmt.Errorf("-output: %w", err)
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// follow hands each schedule of the input to the arrivals. It returns the first error.
func follow(input io.Reader, arrivals *Arrivals) error {
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, 16<<20) // a phase with many bursts is one long line
	for number := 1; lines.Scan(); number++ {
		schedule, err := ParseSchedule(lines.Bytes())
		if err != nil {
			return fmt.Errorf("line %d of the input: %w", number, err)
		}
		arrivals.Replace(schedule)
	}
	return lines.Err()
}

func readTargets(path string) (vegeta.Targeter, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("-targets: %w", err)
	}
	defer file.Close()
	targets, err := vegeta.ReadAllTargets(vegeta.NewJSONTargeter(file, nil, nil))
	if err != nil {
		return nil, fmt.Errorf("-targets: %s: %w", path, err)
	}
	return vegeta.NewStaticTargeter(targets...), nil
}

// write encodes the results until there are no more. After an error it still takes them all, so
// that the attack can end.
func write(file io.Writer, results <-chan *vegeta.Result) error {
	buffered := bufio.NewWriter(file)
	encode := vegeta.NewJSONEncoder(buffered)
	var failed error
	for result := range results {
		if failed == nil {
			failed = encode.Encode(result)
		}
	}
	if failed == nil {
		failed = buffered.Flush()
	}
	return failed
}
