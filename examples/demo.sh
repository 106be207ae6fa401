# Commands of `make demo`. Run it from the root of the repository.
set -eu

show() {
    printf '$ toolmason'
    for word in "$@"; do
        case $word in
        *' '*) printf ' "%s"' "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    toolmason "$@"
}

show list examples/shop.py:box
show call examples/shop.py:box quote_price sku=TEA-01 quantity=3
show chat examples/shop.py:box "What is the price of 3 TEA-01?" --model local
show chat examples/shop.py:box "How much does TEA-99 cost?" --model local
# In a terminal, continue with an interactive chat.
if [ -t 0 ] && [ -t 1 ]; then
    show chat examples/shop.py:box --model local
fi
