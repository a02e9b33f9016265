package flags

import (
	"strings"

	"github.com/spf13/pflag"
)

// Container are the flags of a command that uses the standard streams of a container.
type Container struct {
	Namespace, Container string
	Stdin, TTY           bool
}

// Add adds the flags to f. stdin and tty are the help of their flags.
func (o *Container) Add(f *pflag.FlagSet, stdin, tty string) {
	f.StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the pod")
	f.StringVarP(&o.Container, "container", "c", "",
		"container name (default: the pod's default container, else its first)")
	f.BoolVarP(&o.Stdin, "stdin", "i", false, stdin)
	f.BoolVarP(&o.TTY, "tty", "t", false, tty)
}

// Exec returns the command line of podrun exec with the flags as they are given. args are a pod and a command.
func (o *Container) Exec(args []string) string {
	words := []string{"podrun exec"}
	if o.Stdin {
		words = append(words, "-i")
	}
	if o.TTY {
		words = append(words, "-t")
	}
	if o.Namespace != "default" {
		words = append(words, "-n "+o.Namespace)
	}
	if o.Container != "" {
		words = append(words, "-c "+o.Container)
	}
	return strings.Join(append(append(words, args[0], "--"), args[1:]...), " ")
}
