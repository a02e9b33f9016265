package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/manifest/decode"
)

// FlagMeant returns err, an error of parsing the flags of f, with the flag that was probably meant if
// there is none of the name.
func FlagMeant(f *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	f.VisitAll(func(one *pflag.Flag) { names = append(names, one.Name) })
	if near, _ := decode.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}
