# Shared by the shops of these tests: arguments, the ledger of orders, and the help that names both flags.
command=$1; [ $# -gt 0 ] && shift
amount= key= dry=
while [ $# -gt 0 ]; do
  case $1 in
    --amount) amount=$2; shift ;;
    --idempotency-key) key=$2; shift ;;
    --dry-run) dry=yes ;;
    --help) command="$command --help" ;;
    *) echo "what is $1?" >&2; exit 2 ;;
  esac
  shift
done
act() { echo "$amount" >>orders; }
full_help() {
  cat <<HELP
Usage: shop [--help] COMMAND

Commands:
  create-order  Create an order
  list-orders   List orders

Options:
  --amount N             How much
  --idempotency-key KEY  The name of the intent
  --dry-run              Say what would happen
  --help                 Print help
HELP
}
