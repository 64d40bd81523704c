set -e
python -m pip install --quiet 'simple-salesforce>=1.12.9'
